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

static bool is_priority(const char *text)
{
	return !strncmp(text, "priority", 8) && (!text[8] || text[8] == ':');
}

/* The text behind "priority": nothing, ":strict" or ":AGEING". */
static const char *parse_ageing(const char *text, uint32_t *ageing)
{
	*ageing = !*text ? WQ_DEFAULT_AGEING : WQ_NO_AGEING;
	if (!*text || !strcmp(text, ":strict"))
		return NULL;
	if (*text++ == ':' && parse_figure(&text, WQ_MAX_AGEING, ageing) && *ageing > 1 && !*text)
		return NULL;
	return "AGEING is from 2 to 65536, or strict";
}

const char *parse_order(const char *text, struct wq_attrs *a)
{
	bool groups = !strncmp(text, "groups:", 7), prefix = !strncmp(text, "prefix:", 7);
	bool good;

	if (!strcmp(text, "fifo"))
		return NULL;
	if (is_priority(text)) {
		a->order = WQ_ORDER_PRIORITY;
		return parse_ageing(text + 8, &a->order_arg);
	}
	text += 7;
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
	if (good && *text == ',' && is_priority(text + 1))
		return parse_ageing(text + 9, &a->group_ageing);
	if (good && !*text)
		return NULL;
	return groups ? "DELIMITER is one byte, such as / or 0x2f, IN-FLIGHT is from 1 on, and only priority can follow a comma" :
			"BYTES is from 1 to 1024, IN-FLIGHT is from 1 on, and only priority can follow a comma";
}

void order_text(char *to, size_t size, const struct wq_attrs *attrs)
{
	static const char *const names[] = { "fifo", "priority", "groups", "prefix", "other" };
	uint32_t order = attrs->order, arg = attrs->order_arg;
	const char *name = order <= WQ_ORDER_OTHER ? names[order] : "unknown";
	char limit[40] = "";
	int n = 0;

	if (attrs->group_limit)
		n = snprintf(limit, sizeof(limit), ":%u", attrs->group_limit);
	if (attrs->group_ageing == WQ_NO_AGEING)
		snprintf(limit + n, sizeof(limit) - n, ",priority:strict");
	else if (attrs->group_ageing)
		snprintf(limit + n, sizeof(limit) - n, ",priority:%u", attrs->group_ageing);
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
