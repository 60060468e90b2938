// SPDX-License-Identifier: GPL-2.0-only
/*
 * The files of a queue in debugfs.  A list of keys is compared as a whole, with T in the place of
 * each duration.  trace.sh has the tests of hostile keys and of the directory.
 */
#include "wq_users.h"

#define TEXT_SIZE	65536	/* the most that a file has, and a NUL */
#define SHOWN_KEYS	16	/* of each kind */

FIXTURE(debugfs) {
	int q;
	char name[WQ_NAME_MAX];
	char text[TEXT_SIZE];
};

FIXTURE_SETUP(debugfs)
{
	snprintf(self->name, sizeof(self->name), "debugfs-%d", getpid());
}

FIXTURE_TEARDOWN(debugfs)
{
	q_unlink(self->name);
}

/* Open a new queue whose directory is there. */
static int open_shown(const char *name, struct wq_attrs attrs)
{
	int q = q_dev(O_RDWR), ret;

	attrs.size = sizeof(attrs);
	attrs.flags = EXCL;
	attrs.mode = 0600;
	strcpy(attrs.name, name);
	ret = verb(q, WQ_IOC_OPEN, &attrs);
	return ret ?: has_directory(name) ? q : -ENOENT;
}

static const char *file_of(const char *name, const char *file)
{
	static char path[256];

	snprintf(path, sizeof(path), DEBUGFS_WQ "/%s/%s", name, file);
	return path;
}

/* The length of the text, or -errno; -EFBIG: it is longer than a file may be. */
static int text_of(const char *name, const char *file, char *text)
{
	FILE *f = fopen(file_of(name, file), "r");
	size_t len;

	if (!f)
		return -errno;
	len = fread(text, 1, TEXT_SIZE, f);
	fclose(f);
	if (len == TEXT_SIZE)
		return -EFBIG;
	text[len] = 0;
	return len;
}

/* A duration as people read it: its length in the text, its value and the step of that, in ns. */
static int duration(const char *text, __s64 *ns, __s64 *step)
{
	unsigned int whole, part;
	char unit[3] = "";
	int len = 0;

	if (sscanf(text, "%9u ns%n", &whole, &len) == 1 && len && whole < 1000) {
		*ns = whole;
		*step = 1;
		return len;
	}
	if (sscanf(text, "%9u.%*1[0-9]%*1[0-9]%*1[0-9] %2[mus]%n", &whole, unit, &len) != 2 || !len ||
	    sscanf(strchr(text, '.'), ".%3u", &part) != 1)
		return 0;
	*step = !strcmp(unit, "s") ? MS : !strcmp(unit, "ms") ? 1000 : !strcmp(unit, "us") ? 1 : 0;
	*ns = (whole * 1000LL + part) * *step;
	return *step && whole && (*step == MS || whole < 1000) ? len : 0;
}

/* Whether the list of keys is this text, which may have T for a duration, and N for the name. */
static bool state_is(const char *name, const char *expected)
{
	char *text = malloc(TEXT_SIZE), *at = text;
	const char *want = expected;
	__s64 ns, step;
	int len;

	if (text_of(name, "state", text) < 0)
		abort();
	for (; *want; want++, at += len) {
		if (*want == 'T')
			len = duration(at, &ns, &step);
		else if (*want == 'N')
			len = strncmp(at, name, strlen(name)) ? 0 : strlen(name);
		else
			len = *at == *want;
		if (!len)
			break;
	}
	len = !*want && !*at;
	if (!len)
		COMMENT("expected \"%s\", seen \"%s\", which differs at \"%s\"", expected, text, at);
	free(text);
	return len;
}

static bool state_isf(const char *name, const char *fmt, ...)
{
	char expected[2048];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(expected, sizeof(expected), fmt, ap);
	va_end(ap);
	return state_is(name, expected);
}

/* ---- metrics ---- */

/* Whether the text has the sum, the count, the mean and the buckets of this histogram. */
static bool shows_hist(const char *text, const char *name, const struct wq_hist *h)
{
	static const char * const bounds[WQ_HIST_COUNTS] = {
		"10 ns", "100 ns", "1 us", "10 us", "100 us", "1 ms", "10 ms", "100 ms", "1 s",
		"10 s", "+Inf",
	};
	char line[1024];
	__u64 count = 0;
	__s64 ns, step;
	int len;

	for (int i = 0; i < WQ_HIST_COUNTS; i++)
		count += h->counts[i];
	len = snprintf(line, sizeof(line), "%-36s %llu.%09llu\n  of %llu, mean ", name, h->sum / SEC,
		       h->sum % SEC, count);
	text = strstr(text, line);
	if (!text)
		return equal(name, 1, 0);
	text += len;
	len = duration(text, &ns, &step);
	if (!len || !within("mean", ns, ns + step - 1, count ? h->sum / count : 0))
		return false;
	text += len;
	len = snprintf(line, sizeof(line), "\n");
	for (int i = 0; i < WQ_HIST_COUNTS; i++)
		if (h->counts[i])
			len += snprintf(line + len, sizeof(line) - len, "  up to %-28s %llu\n", bounds[i],
					h->counts[i]);
	return equal_bytes(name, line, text, len) && text[len] != ' ';
}

/* Whether each number that is a metric is the same in stat and in metrics. */
static bool shows_figures(const char *name, const struct wq_stat *st)
{
	enum { COUNTER, GAUGE, GROUPS, TIME, SPAN, HIST, PRIORITIES };
	static const struct {
		int kind;
		const char *field, *metric;
	} figures[] = {
#define VALUE(field, kind, value, json, metric, ...) { kind, #field, metric },
#define OTHER(field, kind, json, metric, ...) { kind, #field, metric },
#define FLAG(...)
#include "../../module/queue/metrics.h"
	};
	const struct stat_field *f;
	const char *shown;
	bool same = true;

	for (size_t i = 0; i < ARRAY_SIZE(figures); i++) {
		if (figures[i].kind > GROUPS || !figures[i].metric)
			continue;
		for (f = stat_fields; strcmp(f->name, figures[i].field);)
			f++;
		shown = strchr(figures[i].metric, '_') + 1;
		same = equal(shown, stat_value(st, f), read_field(file_of(name, "metrics"), shown)) && same;
	}
	return same;
}

TEST_F(debugfs, metrics_are_those_of_stat)
{
	struct wq_reason_rec reason = reason_of(EIO, "no disk");
	struct item a, b, c;
	struct wq_stat st;

	self->q = open_shown(self->name, (struct wq_attrs){});
	ASSERT_LE(0, self->q);
	for (const char *key = "abcde"; *key; key++)
		ASSERT_EQ(1, q_addn(self->q, key, 1));
	ASSERT_EQ(0, q_add(self->q, "e"));
	ASSERT_EQ(0, q_get(self->q, &a, 0));
	ASSERT_EQ(0, q_get(self->q, &b, 0));
	ASSERT_EQ(0, q_get(self->q, &c, 0));
	ASSERT_EQ(1, q_add_after(self->q, "later", HOUR));
	sleep_ms(2);
	ASSERT_EQ(0, q_done(self->q, &a));
	ASSERT_LT(0, q_done_reason(self->q, &b, WQ_OUTCOME_GIVE_UP, &reason));
	q_cancel(self->q, "d");
	st = q_stat(self->q);
	ASSERT_LT(0, text_of(self->name, "metrics", self->text));
	EXPECT_TRUE(shows_hist(self->text, "queue_duration_seconds", &st.waits));
	EXPECT_TRUE(shows_hist(self->text, "work_duration_seconds", &st.works));
	EXPECT_TRUE(shows_figures(self->name, &st));
	EXPECT_EQ(0, read_field(file_of(self->name, "metrics"), "shutdown"));
	EXPECT_EQ(0, read_field(file_of(self->name, "metrics"), "rescan"));
	ASSERT_EQ(0, q_shutdown(self->q));
	EXPECT_EQ(1, read_field(file_of(self->name, "metrics"), "shutdown"));
	ASSERT_EQ(0, q_done(self->q, &c));
}

/* A time in seconds with nine decimals, in ns; -1: the text has no such line. */
static long long ns_of(const char *text, const char *name)
{
	const char *line = strstr(text, name);
	char *part;
	__s64 s;

	if (!line)
		return -1;
	s = strtoll(line + strlen(name), &part, 10);
	return *part == '.' && strspn(part + 1, "0123456789") == 9 ? s * SEC + atoll(part + 1) : -1;
}

TEST_F(debugfs, times_of_metrics_are_seconds)
{
	struct wq_stat before, after;
	struct item it;

	self->q = open_shown(self->name, (struct wq_attrs){});
	ASSERT_EQ(1, q_add(self->q, "a"));
	ASSERT_EQ(1, q_add(self->q, "b"));
	ASSERT_EQ(0, q_get(self->q, &it, 0));
	sleep_ms(2);
	before = q_stat(self->q);
	ASSERT_LT(0, text_of(self->name, "metrics", self->text));
	after = q_stat(self->q);
	EXPECT_TRUE(within("unfinished", before.unfinished, after.unfinished,
			   ns_of(self->text, "\nunfinished_work_seconds")));
	EXPECT_TRUE(within("longest", before.longest, after.longest,
			   ns_of(self->text, "\nlongest_running_processor_seconds")));
	EXPECT_TRUE(within("oldest", before.oldest, after.oldest,
			   ns_of(self->text, "\noldest_seconds")));
}

TEST_F(debugfs, priorities_are_shown_from_the_highest)
{
	static const char levels[] =
		"\nready_keys                           3\n"
		"  priority 127                       1\n"
		"  priority -128                      2\n"
		"blocked_keys                         0\n";

	self->q = open_shown(self->name, (struct wq_attrs){ .order = WQ_ORDER_PRIORITY });
	ASSERT_EQ(1, q_add_level(self->q, "low", -128, 0, 0));
	ASSERT_EQ(1, q_add_level(self->q, "high", 127, 0, 0));
	ASSERT_EQ(1, q_add_level(self->q, "second", -128, 0, 0));
	ASSERT_LT(0, text_of(self->name, "metrics", self->text));
	EXPECT_NE(NULL, strstr(self->text, levels)) TH_LOG("%s", self->text);
	EXPECT_TRUE(state_is(self->name,
			     "N: open, 1 consumers\n"
			     "processing: 0\n"
			     "ready: 3, of these given back: 0\n"
			     "  \"low\", for T, priority -128\n"
			     "  \"high\", for T, priority 127\n"
			     "  \"second\", for T, priority -128\n"
			     "delayed: 0\n"
			     "parked: 0\n"));
}

TEST_F(debugfs, only_the_owner_of_the_machine_reads_the_files)
{
	static const char * const files[] = { "metrics", "state", "attributes" };
	struct stat st;

	self->q = open_shown(self->name, (struct wq_attrs){});
	for (int i = 0; i < ARRAY_SIZE(files); i++) {
		ASSERT_EQ(0, stat(file_of(self->name, files[i]), &st));
		EXPECT_EQ(0400, st.st_mode & 07777);
		EXPECT_EQ(0, st.st_uid);
	}
}

/* ---- the list of keys ---- */

TEST_F(debugfs, state_lists_the_holders_from_the_longest_and_the_next_delay)
{
	static const char shown[] =
		"N: %1$s, 2 consumers\n"
		"processing: 2\n"
		"  \"first\" by process %2$u, for T\n"
		"  \"second\" by process %2$u, for T, dirty\n"
		"ready: 2, of these given back: 0\n"
		"  \"third\", for T\n"
		"  \"fourth\", for T\n"
		"%3$sparked: 0\n";
	struct wq_limiter_spec hour = {
		.kind = WQ_LIMITER_EXPONENTIAL, .base = HOUR, .max = HOUR,
	};
	struct wq_attrs op = { .limiters = addr_of(&hour), .num_limiters = 1 };
	struct item it;
	int other;

	self->q = open_shown(self->name, op);
	other = q_attach(self->name, O_RDWR);
	q_add(self->q, "failing");
	ASSERT_EQ(0, q_get(self->q, &it, 0));
	ASSERT_LT(0, q_done_reason(self->q, &it, WQ_OUTCOME_RETRY, NULL));
	q_add(self->q, "first");
	q_add(self->q, "second");
	q_add(self->q, "third");
	q_add(self->q, "fourth");
	q_add_after(self->q, "tomorrow", DAY);
	ASSERT_EQ(0, q_get(other, &it, 0));
	ASSERT_EQ(0, q_get(self->q, &it, 0));
	ASSERT_EQ(1, q_add(self->q, "second"));
	EXPECT_TRUE(state_isf(self->name, shown, "open", getpid(),
			      "delayed: 2\n"
			      "  \"failing\", due in T, failed 1 times\n"));
	ASSERT_EQ(0, q_shutdown(self->q));
	EXPECT_TRUE(state_isf(self->name, shown, "shut down", getpid(), "delayed: 0\n"));
}

TEST_F(debugfs, files_show_leases_and_disabled_keys)
{
	struct item it;

	self->q = open_shown(self->name, (struct wq_attrs){ .lease = HOUR });
	q_add(self->q, "a");
	ASSERT_EQ(0, q_get(self->q, &it, 0));
	ASSERT_LE(0, q_key_state(self->q, WQ_DO_DISABLE, "a", 1));
	EXPECT_TRUE(state_isf(self->name,
			      "N: open, 1 consumers\n"
			      "processing: 1\n"
			      "  \"a\" by process %u, for T, lease ends in T, disabled\n"
			      "ready: 0, of these given back: 0\n"
			      "delayed: 0\n"
			      "parked: 0\n", getpid()));
	EXPECT_EQ(HOUR, read_field(file_of(self->name, "attributes"), "lease"));
}

TEST_F(debugfs, state_shows_blocked_keys_as_ready_and_16_of_each_kind)
{
	struct wq_attrs op = {
		.order = WQ_ORDER_DELIMITER, .order_arg = '/', .group_limit = 1,
	};
	int n = 0;
	char key[8];
	struct item it;

	self->q = open_shown(self->name, op);
	q_add(self->q, "a/1");
	q_add(self->q, "a/2");
	q_add(self->q, "b/1");
	ASSERT_EQ(0, q_get(self->q, &it, 0));
	EXPECT_TRUE(state_isf(self->name,
			      "N: open, 1 consumers\n"
			      "processing: 1\n"
			      "  \"a/1\" by process %u, for T\n"
			      "ready: 2, of these given back: 0\n"
			      "  \"a/2\", for T\n"
			      "  \"b/1\", for T\n"
			      "delayed: 0\n"
			      "parked: 0\n", getpid()));
	for (int i = 3; i <= 30; i++) {
		snprintf(key, sizeof(key), "a/%d", i);
		ASSERT_EQ(1, q_add(self->q, key));
	}
	ASSERT_LT(0, text_of(self->name, "state", self->text));
	for (char *at = self->text; (at = strstr(at, "\n  \"")); at++)
		n++;
	EXPECT_EQ(1 + SHOWN_KEYS, n);
}

TEST_F(debugfs, state_shows_parked_keys_with_the_reason_and_given_back_ones)
{
	struct wq_reason_rec reason = reason_of(EIO, "no disk");
	struct item it;
	int other;

	self->q = open_shown(self->name, (struct wq_attrs){});
	q_add(self->q, "p");
	ASSERT_EQ(0, q_get(self->q, &it, 0));
	ASSERT_LT(0, q_done_reason(self->q, &it, WQ_OUTCOME_GIVE_UP, &reason));
	other = q_attach(self->name, O_RDWR);
	q_add(self->q, "a");
	q_add(self->q, "b");
	ASSERT_EQ(0, q_get(other, &it, 0));
	close(other);
	EXPECT_TRUE(state_isf(self->name,
			      "N: open, 1 consumers\n"
			      "processing: 0\n"
			      "ready: 2, of these given back: 1\n"
			      "  \"a\", for T, given back 1 times in a row\n"
			      "  \"b\", for T\n"
			      "delayed: 0\n"
			      "parked: 1\n"
			      "  \"p\", for T, failed 1 times, error %d, \"no disk\"\n", EIO));
}

TEST_F(debugfs, texts_of_hundreds_of_long_keys_are_bounded)
{
	struct array keys = array_new(1 << 20), got = array_new(1 << 20);
	char key[1024];

	self->q = open_shown(self->name, (struct wq_attrs){});
	memset(key, 0xff, sizeof(key));
	for (int i = 0; i < 600; i++) {
		memcpy(key, &i, sizeof(i));
		array_put(&keys, key, sizeof(key), 0);
	}
	ASSERT_EQ(0, q_add_array(self->q, &keys));
	/* a call gets at most 8 KiB */
	for (int i = 0; i < 3; i++)
		ASSERT_EQ(0, q_get_array(self->q, &got, 7, 0));
	ASSERT_LT(1000, text_of(self->name, "state", self->text));
	EXPECT_NE(NULL, strstr(self->text, "\nprocessing: 21\n"));
	EXPECT_NE(NULL, strstr(self->text, "\nready: 579, "));
	EXPECT_TRUE(within("bytes of metrics", 500, 8192, text_of(self->name, "metrics", self->text)));
	free(keys.recs);
	free(got.recs);
}

TEST_HARNESS_MAIN
