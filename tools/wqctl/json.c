// SPDX-License-Identifier: GPL-2.0-only
/*
 * wqctl: keys as JSON, and how JSON is printed.
 *
 * The JSON is plain ASCII, so that no key can disturb a terminal.
 */
#include <inttypes.h>
#include <stdio.h>

#include "json.h"

/* A value of the JSON to print is missing, because there was not enough memory. */
static bool incomplete;

void set_json(json_t *to, const char *name, json_t *value)
{
	if (json_object_set_new(to, name, value))
		incomplete = true;
}

void add_json(json_t *to, json_t *value)
{
	if (json_array_append_new(to, value))
		incomplete = true;
}

bool is_complete(const json_t *json)
{
	return json && !incomplete;
}

void set_number(json_t *to, const char *name, uint64_t n)
{
	/* jansson's integers are signed; no counter reaches 2^63. */
	set_json(to, name, json_integer(n < INT64_MAX ? n : INT64_MAX));
}

void set_number_if(json_t *to, const char *name, bool known, uint64_t n)
{
	if (known)
		set_number(to, name, n);
	else
		set_json(to, name, json_null());
}

json_t *base64_json(const unsigned char *from, size_t len)
{
	static const char digits[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	char coded[(WQ_MAX_KEY + 2) / 3 * 4 + 1], *to = coded;
	uint32_t bits;
	size_t i, j;

	for (i = 0; i < len; i += 3) {
		bits = from[i] << 16;
		bits |= i + 1 < len ? from[i + 1] << 8 : 0;
		bits |= i + 2 < len ? from[i + 2] : 0;
		for (j = 0; j < 4; j++)
			*to++ = i + j > len ? '=' : digits[bits >> (18 - 6 * j) & 63];
	}
	*to = '\0';
	return json_string(coded);
}

json_t *text_json(const unsigned char *key, size_t len)
{
	json_t *text;
	size_t i;

	for (i = 0; i < len; i++)
		if (key[i] < 0x20 || key[i] == 0x7f ||
		    (i && key[i - 1] == 0xc2 && key[i] < 0xa0))
			return json_null();
	text = json_stringn((const char *)key, len);
	return text ? text : json_null();
}

json_t *key_bytes_json(const struct wq_view *v)
{
	json_t *json = json_object();

	set_json(json, "key", text_json(v->key, v->len));
	set_json(json, "key_base64", base64_json(v->key, v->len));
	return json;
}

/* Print and free @json, which is NULL if there was not enough memory. */
static int print_json(json_t *json, size_t flags)
{
	if (!is_complete(json) || json_dumpf(json, stdout, flags | JSON_ENSURE_ASCII)) {
		/* A failure of standard output is reported when it is closed. */
		if (!ferror(stdout))
			message("not enough memory");
		json_decref(json);
		return FAILED;
	}
	json_decref(json);
	return DONE;
}

int print_object(json_t *json)
{
	int ret = print_json(json, JSON_INDENT(2));

	putchar('\n');
	return ret;
}

int print_element(json_t *json, bool first)
{
	fputs(first ? "[\n" : ",\n", stdout);
	return print_json(json, JSON_COMPACT);
}

void print_array_end(bool empty)
{
	puts(empty ? "[]" : "\n]");
}

int print_got(const struct wq_view *v, bool held)
{
	json_t *json = key_bytes_json(v);
	char token[24];
	int ret;

	snprintf(token, sizeof(token), "%" PRIu64, v->token);
	set_json(json, "token", held ? json_string(token) : json_null());
	set_number(json, "failures", v->info.failures);
	set_number(json, "given_back", v->info.given_back);
	set_json(json, "priority", json_integer(v->info.priority));
	ret = print_json(json, JSON_COMPACT);
	putchar('\n');
	return ret;
}
