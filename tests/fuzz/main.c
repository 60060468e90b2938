// SPDX-License-Identifier: GPL-2.0-only
/*
 * The fuzzer: selects the next program, stores programs, and detects hangs.
 *
 *	wqfuzz [-t SECONDS] [-s SEED] [-o DIR] FILE...	fuzz, beginning with these programs
 *	wqfuzz -r [-n TIMES] [-v] [-o DIR] FILE...	only run these programs
 *	wqfuzz -m [-o DIR] FILE...			write the smallest set of these programs
 *							that has all their coverage to DIR/corpus
 *
 * A program is stored if it reaches new coverage: a basic block of wq, an edge between two
 * blocks, or a result (an errno of a verb).
 *
 * DIR gets:
 *  - last.N, the latest programs, each written before it runs, so that a crash of the kernel
 *    does not lose them;
 *  - corpus;
 *  - pcs, the reached blocks;
 *  - finding.N, the programs that failed a check.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <linux/kcov.h>

#include "fuzz.h"

#define LAST		16	/* programs whose text is stored before they run */
#define TEXT		4096	/* bytes of a program's text */
#define KEPT		4096	/* programs of the corpus */
#define FINDINGS	10	/* the run ends after so many */
#define EDGES		(1 << 20)
#define ERRNOS		200
#define HANG_MS		4000	/* time limit of a program, which is then killed */
#define DEATH_MS	20000	/* time limit of a killed program to end */

struct shared *shared;
__u64 *trace[FUZZ_TASKS];
int trace_fd[FUZZ_TASKS] = { -1, -1, -1 };

static const char *dir = ".";
static int dir_fd;
static bool verbose;
static __u64 text_from;		/* the address of wq's code */

static pid_t worker_pid;
static int go_fd, ready_fd;

/* Programs with a title stay in the corpus, even if others reach as much. */
static struct entry {
	struct prog prog;
	char title[128];
} corpus[KEPT];
static __u32 ncorpus;

/* Coverage: blocks of code, edges between two blocks, and results (errnos of verbs). */
static __u8 pc_seen[FUZZ_TEXT], edge_seen[EDGES], answer_seen[OPS][ERRNOS];
static __u32 npcs, nanswers;
static __u64 nruns, nhangs;
static unsigned int nfindings;

/* The new coverage of the program that ran last. */
static struct news {
	__u32 n;
	struct { __u8 *at; bool edge; } what[16384];
} news;

/* The longest call of each op that may not wait. */
static struct {
	__u64 ns, blocks;
} worst[OPS];
static __u64 calls_of[OPS];

static __u64 now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000ULL + ts.tv_nsec / 1000000;
}

static void die(const char *what)
{
	fprintf(stderr, "fuzz: %s: %s\n", what, strerror(errno));
	exit(3);
}

/* ---- the worker ---- */

static void worker_start(void)
{
	int go[2], ready[2];

	if (pipe2(go, O_CLOEXEC) || pipe2(ready, O_CLOEXEC))
		die("pipe");
	worker_pid = fork();
	if (worker_pid < 0)
		die("fork");
	if (!worker_pid) {
		setpgid(0, 0);
		close(go[1]);
		close(ready[0]);
		worker(go[0], ready[1]);
	}
	setpgid(worker_pid, worker_pid);
	close(go[0]);
	close(ready[1]);
	go_fd = go[1];
	ready_fd = ready[0];
}

/* Prints the stacks of its threads. */
static void worker_tell(void)
{
	char cmd[128];

	fflush(stdout);
	snprintf(cmd, sizeof(cmd), "cd /proc/%d/task && grep . */comm */syscall */stack",
		 worker_pid);
	if (system(cmd))
		printf("(unknown)\n");
}

/* Kills it with all its children, which are then reparented to this process. */
static void worker_kill(void)
{
	__u64 until = now_ms() + DEATH_MS;
	int status;

	close(go_fd);
	close(ready_fd);
	kill(-worker_pid, SIGKILL);
	kill(worker_pid, SIGKILL);
	for (;;) {
		pid_t pid = waitpid(-1, &status, WNOHANG);

		if (pid == worker_pid && verbose)
			printf("fuzz: the worker ended with status 0x%x\n", status);
		if (pid < 0 && errno == ECHILD)
			return;
		if (now_ms() > until)
			break;
		if (!pid)
			usleep(1000);
		kill(-worker_pid, SIGKILL);
	}
	printf("fuzz: a process can't be killed; its stacks:\n");
	worker_tell();
	exit(1);
}

static size_t prog_text(char *text, size_t size, const struct prog *p, const char *title)
{
	FILE *f = fmemopen(text, size, "w");
	size_t n;

	if (!f)
		die("fmemopen");
	fprintf(f, "#%s%s\n", *title ? " " : "", title);
	prog_print(f, p);
	n = ftell(f);
	fclose(f);
	return n;
}

static void prog_save(const char *name, const struct prog *p, const char *title)
{
	char text[TEXT];
	size_t n = prog_text(text, sizeof(text), p, title);
	int fd = openat(dir_fd, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	if (fd < 0 || write(fd, text, n) != n || close(fd))
		die(name);
}

/*
 * Stores a program before it runs, in a file on the host, so that a crash of the kernel does
 * not lose it.
 */
static void prog_note(const struct prog *p)
{
	static int fds[LAST];
	int i = nruns % LAST;
	char text[TEXT], name[16];
	size_t n;

	if (nruns < LAST) {
		snprintf(name, sizeof(name), "last.%d", i);
		fds[i] = openat(dir_fd, name, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	}
	n = prog_text(text, sizeof(text), p, "");
	/* A program has no blank lines. */
	memset(text + n, '\n', sizeof(text) - n);
	if (pwrite(fds[i], text, sizeof(text), 0) != sizeof(text) ||
	    sync_file_range(fds[i], 0, sizeof(text), SYNC_FILE_RANGE_WRITE |
			    SYNC_FILE_RANGE_WAIT_AFTER))
		die("last");
}

static void finding(const struct prog *p, const char *what)
{
	static char seen[FINDINGS][sizeof(shared->fault)];
	char name[32], kind[sizeof(shared->fault)];
	size_t n = 0;

	/* Findings that differ in numbers only count as one. */
	for (const char *s = what; *s; s++)
		if (!isdigit(*s))
			kind[n++] = *s;
	kind[n] = '\0';
	for (unsigned int i = 0; i < nfindings; i++)
		if (!strcmp(seen[i], kind))
			return;
	strcpy(seen[nfindings], kind);
	snprintf(name, sizeof(name), "finding.%u", ++nfindings);
	prog_save(name, p, what);
	printf("fuzz: FOUND: %s\n", what);
	prog_print(stdout, p);
	fflush(stdout);
}

/* Runs a program and leaves its results in *shared. Returns false if it hung and was killed. */
static bool run(const struct prog *p)
{
	struct pollfd pfd = { .events = POLLIN };
	char name[16], byte;
	bool done;

	prog_note(p);
	nruns++;
	if (!worker_pid)
		worker_start();
	shared->prog = *p;
	if (write(go_fd, "", 1) != 1)
		die("worker");
	pfd.fd = ready_fd;
	done = poll(&pfd, 1, HANG_MS) == 1 && read(ready_fd, &byte, 1) == 1;
	if (!done) {
		if (verbose)
			worker_tell();
		worker_kill();
		worker_pid = 0;
		names_unlink();
		snprintf(name, sizeof(name), "hung.%llu", (unsigned long long)(nhangs++ % LAST));
		prog_save(name, p, "");
	}
	if (shared->fault[0])
		finding(p, shared->fault);
	return done;
}

/* ---- coverage ---- */

static void trace_open(void)
{
	FILE *f = fopen("/sys/module/wq/sections/.text", "r");
	unsigned long long at;

	if (f) {
		if (fscanf(f, "%llx", &at) == 1)
			text_from = at;
		fclose(f);
	}
	for (int i = 0; i < FUZZ_TASKS && text_from; i++) {
		int fd = open("/sys/kernel/debug/kcov", O_RDWR | O_CLOEXEC);

		if (fd < 0 || ioctl(fd, KCOV_INIT_TRACE, FUZZ_PCS))
			return;
		trace[i] = mmap(NULL, FUZZ_PCS * sizeof(__u64), PROT_READ | PROT_WRITE,
				MAP_SHARED, fd, 0);
		if (trace[i] == MAP_FAILED)
			die("kcov");
		trace_fd[i] = fd;
	}
}

static void mark(__u8 *at, bool seen)
{
	int n = seen - *at;

	*at = seen;
	if (at >= pc_seen && at < pc_seen + sizeof(pc_seen))
		npcs += n;
	else if (at < edge_seen || at >= edge_seen + sizeof(edge_seen))
		nanswers += n;
}

static void note(__u8 *at, bool edge)
{
	if (*at)
		return;
	mark(at, true);
	if (news.n < ARRAY_SIZE(news.what)) {
		news.what[news.n].at = at;
		news.what[news.n++].edge = edge;
	}
}

/* Records the coverage of the last run, and which part of it is new. */
static void notice(void)
{
	const struct prog *p = &shared->prog;

	news.n = 0;
	for (int i = 0; i < FUZZ_TASKS; i++) {
		__u64 n = trace[i] ? trace[i][0] : 0, last = 0;

		for (__u64 k = 1; k <= n && k < FUZZ_PCS; k++) {
			__u64 pc = trace[i][k] - text_from;

			if (pc >= FUZZ_TEXT)
				continue;
			note(&pc_seen[pc], false);
			note(&edge_seen[(pc * 0x9e3779b1 ^ last * 0x85ebca77) % EDGES], true);
			last = pc;
		}
	}
	for (__u32 i = 0; i < p->n; i++) {
		const struct outcome *o = &shared->outcome[i];
		enum op op = p->call[i].op;

		if (!o->ran)
			continue;
		calls_of[op]++;
		if (OP_IS_VERB(op) && -o->ret >= 0 && -o->ret < ERRNOS)
			note(&answer_seen[op][-o->ret], false);
		if (o->to > o->from && o->to - o->from > worst[op].blocks)
			worst[op].blocks = o->to - o->from;
	}
}

static __u64 longest_of(enum op op)
{
	__u64 ns = 0;

	for (__u32 i = 0; i < shared->prog.n; i++)
		if (shared->prog.call[i].op == op && !shared->outcome[i].waits &&
		    shared->outcome[i].ns > ns)
			ns = shared->outcome[i].ns;
	return ns;
}

/* The shortest of several runs counts, because the machine may interrupt a run. */
static void clock_calls(const struct prog *p)
{
	for (enum op op = 0; op < OPS; op++) {
		__u64 ns = OP_IS_VERB(op) ? longest_of(op) : 0, again;

		for (int i = 0; i < 4 && ns > worst[op].ns; i++) {
			if (!run(p))
				return;
			again = longest_of(op);
			if (again < ns)
				ns = again;
		}
		if (ns > worst[op].ns)
			worst[op].ns = ns;
	}
}

/* Runs @p and moves the parts of @what that it reaches to the front; returns their number. */
static __u32 reached_of(const struct prog *p, struct news *what)
{
	__u32 n = 0;

	for (__u32 i = 0; i < what->n; i++)
		mark(what->what[i].at, false);
	if (run(p))
		notice();
	for (__u32 i = 0; i < what->n; i++) {
		__typeof__(what->what[0]) w = what->what[i];

		if (*w.at) {
			what->what[i] = what->what[n];
			what->what[n++] = w;
		}
		mark(w.at, true);
	}
	return n;
}

/* Removes all calls and arguments that the coverage does not need. */
static void shrink(struct prog *p, struct news *what)
{
	struct prog less;

	for (__u32 i = p->n; i-- > 0 && p->n > 1;) {
		less = *p;
		prog_remove(&less, i);
		if (reached_of(&less, what) == what->n)
			*p = less;
	}
	for (__u32 i = 0; i < p->n; i++) {
		for (enum arg a = 0; a < ARGS; a++) {
			if (!p->call[i].arg[a])
				continue;
			less = *p;
			less.call[i].arg[a] = 0;
			if (reached_of(&less, what) == what->n)
				*p = less;
		}
	}
}

/* After a run: stores the program if it reached new code and does so again. */
static void keep(const struct prog *p)
{
	struct news what = news;
	struct prog small = *p;
	bool blocks = false;

	if (!what.n || ncorpus == KEPT)
		return;
	/* Only reproducible coverage counts. */
	what.n = reached_of(p, &what);
	if (!what.n)
		return;
	for (__u32 i = 0; i < what.n; i++)
		blocks |= !what.what[i].edge;
	if (blocks)
		shrink(&small, &what);
	corpus[ncorpus++].prog = small;
}

/* ---- between programs: nothing may be left of those that ended ---- */

static long module_users(void)
{
	FILE *f = fopen("/sys/module/wq/refcnt", "r");
	long n = 0;

	if (f) {
		if (fscanf(f, "%ld", &n) != 1)
			n = -1;
		fclose(f);
	}
	return n;
}

/* Whether the default set has a queue. */
static bool queues_left(void)
{
	DIR *dir = opendir("/dev/wqueue");
	bool left = false;
	struct dirent *e;

	while (dir && (e = readdir(dir)))
		left |= e->d_name[0] != '.';
	if (dir)
		closedir(dir);
	return left || !dir;
}

/* That of the mount. */
static long first_users;

/* Whether no file is open, after a while: a kernel thread closes files in flight on a socket. */
static bool settled(void)
{
	for (int i = 0; i < 100 && module_users() != first_users; i++)
		usleep(20000);
	return module_users() == first_users;
}

static void settle_check(const struct prog *last)
{
	/* A file that a killed thread was about to use is open until the worker ends. */
	if (!settled() && worker_pid) {
		worker_kill();
		worker_pid = 0;
	}
	if (!settled())
		finding(last, "the module is in use though no file is open");
	if (queues_left())
		finding(last, "a queue is left");
}

/* ---- output ---- */

static void progress(__u64 ms)
{
	printf("fuzz: %llu s: %llu inputs (%llu/s), corpus %u, %u blocks, %u answers, %llu hung, "
	       "%u found\n", (unsigned long long)ms / 1000, (unsigned long long)nruns,
	       (unsigned long long)(nruns * 1000 / (ms + 1)), ncorpus, npcs, nanswers,
	       (unsigned long long)nhangs, nfindings);
	fflush(stdout);
}

static void corpus_save(void)
{
	FILE *f;
	int fd = openat(dir_fd, "corpus", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	f = fd < 0 ? NULL : fdopen(fd, "w");
	if (!f)
		die("corpus");
	for (__u32 i = 0; i < ncorpus; i++) {
		fprintf(f, "%s#%s%s\n", i ? "\n" : "", corpus[i].title[0] ? " " : "",
			corpus[i].title);
		prog_print(f, &corpus[i].prog);
	}
	fclose(f);

	fd = openat(dir_fd, "pcs", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	f = fd < 0 ? NULL : fdopen(fd, "w");
	if (!f)
		die("pcs");
	for (__u32 i = 0; i < FUZZ_TEXT; i++)
		if (pc_seen[i])
			fprintf(f, "%x\n", i);
	fclose(f);
}

static void summary(void)
{
	printf("fuzz: %-9s %10s %14s %10s  answers\n", "verb", "calls", "longest, us", "blocks");
	for (enum op op = 0; op < OPS; op++) {
		if (!OP_IS_VERB(op))
			continue;
		printf("fuzz: %-9s %10llu %14llu %10llu ", op_info[op].word,
		       (unsigned long long)calls_of[op],
		       (unsigned long long)worst[op].ns / 1000,
		       (unsigned long long)worst[op].blocks);
		for (int e = 0; e < ERRNOS; e++)
			if (answer_seen[op][e])
				printf(" %s", e ? error_name(-e) ?: "?" : "0");
		printf("\n");
	}
	fflush(stdout);
}

/* ---- the modes ---- */

static void tell(const struct prog *p, const char *title)
{
	char line[512];

	printf("# %s\n", title);
	for (__u32 i = 0; i < p->n; i++) {
		const struct outcome *o = &shared->outcome[i];

		call_print(line, sizeof(line), &p->call[i]);
		printf("%-60s", line);
		if (o->ran)
			printf(" = %d %s, %llu ns, %u blocks, task %u", o->ret,
			       o->ret < 0 ? error_name(o->ret) ?: strerror(-o->ret) : "",
			       (unsigned long long)o->ns, o->to - o->from, o->task);
		printf("\n");
	}
	fflush(stdout);
}

static __u32 corpus_read(char **files, bool told)
{
	static char title[sizeof(corpus[0].title)];
	__u32 n = 0, bad = 0;
	struct prog p;

	for (; *files; files++) {
		FILE *f = fopen(*files, "r");

		if (!f)
			die(*files);
		for (; prog_read(f, &p, title, sizeof(title)); n++) {
			unsigned int before = nfindings;
			bool done = run(&p);

			notice();
			if (told && verbose)
				tell(&p, title);
			if (told && (!done || nfindings > before)) {
				printf("not ok %u %s%s\n", n + 1, title, done ? "" : ": hangs");
				bad++;
			}
			if (!told && title[0] && ncorpus < KEPT) {
				corpus[ncorpus].prog = p;
				strcpy(corpus[ncorpus++].title, title);
			} else if (!told) {
				keep(&p);
			}
		}
		fclose(f);
	}
	if (!n) {
		fprintf(stderr, "fuzz: no program in these files\n");
		exit(2);
	}
	if (told)
		printf("fuzz: ran %u programs, %u failed, reached %u blocks and %u answers\n",
		       n, bad, npcs, nanswers);
	fflush(stdout);
	return n;
}

static void fuzz(__u64 seconds)
{
	__u64 start = now_ms(), told = start, settled = start, now;
	struct prog p;

	while ((now = now_ms()) < start + seconds * 1000 && nfindings < FINDINGS) {
		/*
		 * A new program now and then, otherwise a stored one, and more often a recent
		 * one.
		 */
		if (!ncorpus || !fuzz_below(20)) {
			prog_make(&p);
		} else {
			__u32 n = ncorpus, young = n / 4 + 1;

			p = corpus[fuzz_below(3) ? fuzz_below(n) : n - 1 - fuzz_below(young)].prog;
			prog_mutate(&p, &corpus[fuzz_below(n)].prog);
		}
		if (run(&p)) {
			notice();
			clock_calls(&p);
			keep(&p);
		}
		if (now - told >= 5000) {
			progress(now - start);
			corpus_save();
			told = now;
		}
		if (now - settled >= 2000) {
			settle_check(&p);
			settled = now_ms();
		}
	}
	progress(now - start);
}

/* The coverage of a program: blocks and results. */
struct reach {
	__u32 n;
	__u8 **at;
};

static struct reach reach_of(const struct prog *p)
{
	struct reach r = {};

	memset(pc_seen, 0, sizeof(pc_seen));
	memset(edge_seen, 0, sizeof(edge_seen));
	memset(answer_seen, 0, sizeof(answer_seen));
	news.n = 0;
	if (run(p))
		notice();
	r.at = calloc(news.n, sizeof(*r.at));
	for (__u32 i = 0; i < news.n; i++)
		if (!news.what[i].edge)
			r.at[r.n++] = news.what[i].at;
	return r;
}

static __u32 fresh_of(const struct reach *r)
{
	__u32 fresh = 0;

	for (__u32 i = 0; i < r->n; i++)
		fresh += !*r->at[i];
	return fresh;
}

static void minimise_keep(const struct entry *e, const struct reach *r)
{
	corpus[ncorpus++] = *e;
	for (__u32 i = 0; i < r->n; i++)
		mark(r->at[i], true);
}

static bool is_known(const struct entry *e)
{
	for (__u32 i = 0; i < ncorpus; i++)
		if (!strcmp(corpus[i].title, e->title))
			return true;
	return false;
}

/*
 * Writes the programs with a title, and then those that add coverage, the largest addition for
 * each call first.
 */
static void minimise(char **files)
{
	static struct entry all[KEPT];
	static struct reach reach[KEPT];
	__u32 n = 0, most, at;

	for (; *files; files++) {
		FILE *f = fopen(*files, "r");

		if (!f)
			die(*files);
		while (n < KEPT && prog_read(f, &all[n].prog, all[n].title, sizeof(all[n].title)))
			n++;
		fclose(f);
	}
	for (__u32 i = 0; i < n; i++) {
		reach[i] = reach_of(&all[i].prog);
		if (i % 50 == 0) {
			printf("fuzz: %u of %u programs run\n", i, n);
			fflush(stdout);
		}
	}
	memset(pc_seen, 0, sizeof(pc_seen));
	memset(answer_seen, 0, sizeof(answer_seen));
	npcs = 0;
	nanswers = 0;
	for (__u32 i = 0; i < n; i++)
		if (all[i].title[0] && !is_known(&all[i]))
			minimise_keep(&all[i], &reach[i]);
	do {
		most = 0;
		for (__u32 i = 0; i < n; i++) {
			__u32 fresh = FUZZ_CALLS * fresh_of(&reach[i]) / all[i].prog.n;

			if (fresh > most) {
				most = fresh;
				at = i;
			}
		}
		if (most)
			minimise_keep(&all[at], &reach[at]);
	} while (most);
	printf("fuzz: %u programs of %u reach %u blocks and %u answers\n", ncorpus, n,
	       npcs, nanswers);
}

int main(int argc, char **argv)
{
	__u64 seconds = 600, seed = time(NULL);
	bool replay = false, less = false;
	unsigned int times = 1;
	struct prog last = {};
	const char *why;
	int opt;

	while ((opt = getopt(argc, argv, "t:s:o:rn:vm")) >= 0) {
		switch (opt) {
		case 't':
			seconds = strtoull(optarg, NULL, 0);
			break;
		case 's':
			seed = strtoull(optarg, NULL, 0);
			break;
		case 'o':
			dir = optarg;
			break;
		case 'r':
			replay = true;
			break;
		case 'n':
			times = strtoul(optarg, NULL, 0);
			break;
		case 'v':
			verbose = true;
			break;
		case 'm':
			less = true;
			break;
		default:
			fprintf(stderr, "usage: wqfuzz [-t SECONDS] [-s SEED] [-o DIR] FILE...\n"
				"       wqfuzz -r [-n TIMES] [-v] [-o DIR] FILE...\n"
				"       wqfuzz -m [-o DIR] FILE...\n");
			return 2;
		}
	}
	dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir_fd < 0)
		die(dir);
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
		      -1, 0);
	if (shared == MAP_FAILED)
		die("mmap");
	signal(SIGPIPE, SIG_IGN);
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	fuzz_seed(seed);
	first_users = module_users();
	trace_open();
	if (!trace[0])
		printf("fuzz: no kcov, or no wq.ko: programs run without coverage\n");

	if (less) {
		minimise(argv + optind);
	} else if (replay) {
		while (times--)
			corpus_read(argv + optind, true);
	} else {
		printf("fuzz: seed %llu, %llu s\n", (unsigned long long)seed,
		       (unsigned long long)seconds);
		if (argv[optind])
			corpus_read(argv + optind, false);
		fuzz(seconds);
		summary();
	}
	settle_check(&last);
	why = limits_check();
	if (why)
		finding(&last, why);
	corpus_save();
	printf("fuzz: %llu inputs, %u findings\n", (unsigned long long)nruns, nfindings);
	return nfindings ? 1 : 0;
}
