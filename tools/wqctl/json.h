/* SPDX-License-Identifier: GPL-2.0-only */
/* wqctl: keys as JSON, and how JSON is printed. */
#ifndef JSON_H
#define JSON_H

#include <jansson.h>

#include "wqctl.h"

/*
 * Set a member, or append an element.  @value is NULL if there was not enough memory: then no
 * further JSON is printed, and the exit status is FAILED.
 */
void set_json(json_t *to, const char *name, json_t *value);
void add_json(json_t *to, json_t *value);

/* Whether there was enough memory for @json. */
bool is_complete(const json_t *json);

void set_number(json_t *to, const char *name, uint64_t n);

/* null if it is not known */
void set_number_if(json_t *to, const char *name, bool known, uint64_t n);

/* Up to WQ_MAX_KEY bytes in base64. */
json_t *base64_json(const unsigned char *from, size_t len);

/* A string if the key is UTF-8 without control characters, else null. */
json_t *text_json(const unsigned char *key, size_t len);

/* An object with the bytes of a key: base64 always has them, a string only if they are text. */
json_t *key_bytes_json(const struct wq_view *v);

/* Print and free @json, which is NULL if there was not enough memory.  Return the exit status. */
int print_object(json_t *json);

/*
 * Print an array element by element, so that a large queue needs no memory.  If an
 * error cuts it short, the end is missing, and a JSON parser notices.
 */
int print_element(json_t *json, bool first);
void print_array_end(bool empty);

/* Print a key of get in a line.  @held: a descriptor holds it, so its token is of use. */
int print_got(const struct wq_view *v, bool held);

#endif /* JSON_H */
