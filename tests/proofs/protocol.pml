/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The protocol of get, done, give-back, drain, flush and disable of one key, for all orders of
 * steps of a producer, three consumers, a flush, a disable and a drain.  A hold of wq.lock is one
 * atomic step, and so is a wake-up.  Between a consumer's look and its sleep, all others may run.
 *
 * What holds in each state, or at the end of each order of steps:
 *
 *  - The key has one consumer at a time.
 *  - Each add that was accepted has a run that starts after it and ends with done, unless a disable
 *    drops it.
 *  - A flush returns when the adds before it had their runs, or were dropped, or if a run was lost
 *    twice in a row, so that the key failed.
 *  - After a disable has returned, no run begins or is in progress until the enable.
 *  - A drain returns when no key is ready or processing, and then no consumer waits.
 *  - No wake-up is lost: all come to their end, though one consumer waits for a key that another
 *    one holds, and consumers die, with a key or with a wake-up.
 *
 * module/state/state.h has the states of an entry, and module/base/wait_end.c the rules of fences.
 *
 * Fault: NO_WAKE_AT_GIVE_BACK
 * Fault: NO_PASS_ON
 * Fault: LOOK_BEFORE_WAIT
 * Fault: IDLE_LEAVES_AT_DRAIN
 * Fault: DRAIN_FORGETS_READY
 * Fault: DONE_FORGETS_DIRTY
 * Fault: FLUSH_JOINS_ANY_RUN
 * Fault: DISABLE_DOES_NOT_WAIT
 * Fault: GIVE_BACK_ENDS_FENCE
 */
#define CONSUMERS	3
#define DEATHS		2
#define ADDS		2

#define NOBODY		255

/* the entry */
bool dirty, processing, disabled;
byte holder = NOBODY, token, given_back;

/* the queue */
bool shut, drained;
bool waiting[CONSUMERS];	/* in wq.getters */
byte alive = CONSUMERS, deaths;

/* what was promised: numbers of adds */
byte added, started, covered;

/* the fences: of the flush and of the disable */
mtype = { NONE, WAITS, ENDED };
mtype fence[2] = NONE;
byte after[2];

bool failed;			/* a run was lost twice in a row */

bool flushed, disable_done;

inline wake_one()
{
	if
	:: waiting[0] -> waiting[0] = false
	:: waiting[1] -> waiting[1] = false
	:: waiting[2] -> waiting[2] = false
	:: !waiting[0] && !waiting[1] && !waiting[2] -> skip
	fi
}

inline wake_all()
{
	waiting[0] = false; waiting[1] = false; waiting[2] = false
}

/* The end of a run, or of the pending one if none is in progress. */
inline end_fences()
{
	i = 0;
	do
	:: i < 2 ->
		if
		:: fence[i] == WAITS && (!processing || after[i] != token || !dirty) ->
			fence[i] = ENDED
		:: else -> skip
		fi;
		i++
	:: else -> break
	od;
	i = 0
}

inline check_drained()
{
	if
#ifdef DRAIN_FORGETS_READY
	:: shut && !processing -> drained = true; wake_all()
#else
	:: shut && !processing && !dirty -> drained = true; wake_all()
#endif
	:: else -> skip
	fi
}

inline end_run()
{
	assert(processing && holder == me);
	covered = (started > covered -> started : covered);
	given_back = 0;
#ifdef DONE_FORGETS_DIRTY
	dirty = false;
#endif
	end_fences();
	processing = false;
	holder = NOBODY;
	if
	:: dirty -> wake_one()
	:: else -> skip
	fi;
	check_drained()
}

/* The last close of a file that holds the key. */
inline lose_run()
{
	assert(processing && holder == me);
	if
	:: given_back == 0 || shut ->
#ifdef GIVE_BACK_ENDS_FENCE
		end_fences();
#endif
		dirty = true
	:: else ->
		/* The key failed, and is retried.  A disable drops the retry. */
		dirty = !disabled; failed = true;
		if
		:: disabled -> covered = added
		:: else -> skip
		fi;
		end_fences()
	fi;
	given_back = 1;
	processing = false;
	holder = NOBODY;
#ifndef NO_WAKE_AT_GIVE_BACK
	if
	:: dirty -> wake_one()
	:: else -> skip
	fi;
#endif
	check_drained()
}

proctype consumer(byte me)
{
	bool got, over;
	byte i;

	do
	:: true ->
again:
		/* prepare_to_wait(), then the look with the lock held */
#ifdef LOOK_BEFORE_WAIT
		skip;
#else
		atomic { waiting[me] = true };
#endif
		atomic {
			got = false; over = false;
			if
			:: dirty && !processing ->
				assert(!disable_done || !disabled);
				dirty = false; processing = true; holder = me;
				token++; started = added; got = true;
				waiting[me] = false
#ifdef IDLE_LEAVES_AT_DRAIN
			:: !(dirty && !processing) && shut -> over = true; waiting[me] = false
#else
			:: !(dirty && !processing) && shut && !processing ->
				over = true; waiting[me] = false
			:: !(dirty && !processing) && shut && processing -> skip
#endif
			:: !(dirty && !processing) && !shut -> skip
			fi
		};
#ifdef LOOK_BEFORE_WAIT
		if
		:: !got && !over -> waiting[me] = true
		:: else -> skip
		fi;
#endif
		if
		:: over -> goto out
		:: got -> skip
		:: else ->
			if
			:: !waiting[me] ->
				/* A woken task may be killed before it looks. */
				if
				:: goto again
				:: atomic { deaths < DEATHS && alive > 1 -> deaths++; alive-- };
#ifndef NO_PASS_ON
					atomic {
						if
						:: dirty && !processing -> wake_one()
						:: else -> skip
						fi
					};
#endif
					goto out
				fi
			fi
		fi;
		/* the run */
		if
		:: atomic { end_run() }
		:: atomic { deaths < DEATHS && alive > 1 -> deaths++; alive--; lose_run() };
			goto out
		fi
	od;
out:
	skip
}

proctype producer()
{
	byte n;

	do
	:: n < ADDS ->
		n++;
		atomic {
			if
			:: shut || disabled -> skip	/* ESHUTDOWN, EBUSY */
			:: else ->
				added++;
				if
				:: dirty -> skip
				:: else ->
					dirty = true;
					if
					:: !processing -> wake_one()
					:: else -> skip
					fi
				fi
			fi
		}
	:: else -> break
	od;
	/* The drain comes last, as it refuses all adds. */
	flushed && !disabled && disable_done;
	atomic { shut = true; wake_all(); check_drained() };
	drained;
	assert(!processing && !dirty);
	assert(covered == added)
}

proctype flush()
{
	byte promised;

	atomic {
		promised = added;
		if
		:: dirty || processing ->
			fence[0] = WAITS;
#ifdef FLUSH_JOINS_ANY_RUN
			after[0] = token - 1
#else
			after[0] = (dirty -> token : token - 1)
#endif
		:: else -> fence[0] = ENDED
		fi
	};
	fence[0] == ENDED;
	assert(covered >= promised || failed);
	flushed = true
}

proctype disable()
{
	byte i;

	atomic {
		disabled = true;
		if
		:: processing ->
			/* Waits for what is dropped end with the run in progress. */
			dirty = false; started = added;
			fence[1] = WAITS; after[1] = token - 1
		:: !processing ->
			dirty = false; covered = added; end_fences();
			fence[1] = ENDED
		fi
	};
#ifndef DISABLE_DOES_NOT_WAIT
	fence[1] == ENDED;
#endif
	atomic { assert(!processing); disable_done = true };
	atomic { disabled = false }
}

init
{
	atomic {
		run consumer(0); run consumer(1); run consumer(2);
		run producer(); run flush(); run disable()
	}
}
