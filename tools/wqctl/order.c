// SPDX-License-Identifier: GPL-2.0-only
/* wqctl: parsing and printing of orders. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "wqctl.h"

/* A number up to @max, which ends at @end; false: it is none, or it is above. */
static bool parse_figure(const char **text, uint32_t max, uint32_t *n)
{
	unsigned long long value;
	char *end;

	errno = 0;
	value = strtoull(*text, &end, 0);
	if (errno || **text < '0' || **text > '9' || value > max)
		return false;
	*text = end;
	*n = value;
	return true;
}

const char *parse_order(const char *text, struct wq_attrs *a)
{
	bool priority = !strncmp(text, "priority", 8) && (!text[8] || text[8] == ':'), groups = !strncmp(text, "groups:", 7);
	bool prefix = !strncmp(text, "prefix:", 7);
	bool good;

	if (!strcmp(text, "fifo"))
		return NULL;
	text += priority ? 8 : 7;
	if (priority) {
		a->order = WQ_ORDER_PRIORITY;
		if (!strcmp(text, ":strict")) {
			a->order_arg = WQ_NO_AGEING;
			return NULL;
		}
		good = !*text || (*text++ == ':' &&
				  parse_figure(&text, WQ_MAX_AGEING, &a->order_arg) &&
				  a->order_arg > 1);
		return good && !*text ? NULL : "AGEING is from 2 to 65536, or strict";
	}
	if (groups) {
		a->order = WQ_ORDER_DELIMITER;
		good = !strncmp(text, "0x", 2) ? parse_figure(&text, UINT8_MAX, &a->order_arg) :
		       (a->order_arg = (unsigned char)*text++);
	} else if (prefix) {
		a->order = WQ_ORDER_PREFIX;
		good = parse_figure(&text, WQ_MAX_KEY, &a->order_arg) && a->order_arg;
	} else {
		return "a queue has one of the orders fifo, priority, groups:DELIMITER and prefix:BYTES";
	}
	if (good && *text == ':') {
		text++;
		good = parse_figure(&text, UINT32_MAX, &a->group_limit) && a->group_limit;
	}
	if (good && !*text)
		return NULL;
	return groups ? "DELIMITER is one byte, such as / or 0x2f, and IN-FLIGHT is from 1 on" :
			"BYTES is from 1 to 1024, and IN-FLIGHT is from 1 on";
}

void order_text(char *to, size_t size, const struct wq_attrs *attrs)
{
	static const char *const names[] = { "fifo", "priority", "groups", "prefix", "other" };
	uint32_t order = attrs->order, arg = attrs->order_arg;
	const char *name = order <= WQ_ORDER_OTHER ? names[order] : "unknown";
	char limit[16] = "";

	if (attrs->group_limit)
		snprintf(limit, sizeof(limit), ":%u", attrs->group_limit);
	if (order == WQ_ORDER_DELIMITER && arg > ' ' && arg < 0x7f)
		snprintf(to, size, "%s:%c%s", name, (int)arg, limit);
	else if (order == WQ_ORDER_DELIMITER)
		snprintf(to, size, "%s:0x%02x%s", name, arg, limit);
	else if (order == WQ_ORDER_PRIORITY && arg == WQ_NO_AGEING)
		snprintf(to, size, "%s:strict", name);
	else if (order == WQ_ORDER_PRIORITY || order == WQ_ORDER_PREFIX)
		snprintf(to, size, "%s:%u%s", name, arg, limit);
	else
		snprintf(to, size, "%s", name);
}
