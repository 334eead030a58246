/*
 * The protocol of sqlherd, as the code has it: one key, one tag, two processes
 * that share one Redis. README.md says what is modelled and what is left out,
 * what the properties are, and how to read a counterexample. check.sh runs it.
 *
 * A configuration is a set of -D options. Each -DMUT_… breaks one rule of the
 * protocol; check.sh expects every one of them to be caught.
 *
 * Each step names the function it stands for. What is one atomic step here is
 * one script of Redis, one critical section, or local work that nobody else can see.
 */

#ifndef R0
#define R0 2	/* readers in process 0 */
#endif
#ifndef R1
#define R1 1	/* readers in process 1 */
#endif
#ifndef READS
#define READS 1	/* reads of each reader, one after the other */
#endif
#ifndef W0
#define W0 1	/* writes in process 0 */
#endif
#ifndef W1
#define W1 0	/* writes in process 1 */
#endif
#ifndef UNSEEN
#define UNSEEN 0	/* writes by others, which nobody invalidates */
#endif
#ifndef EVICTIONS
#define EVICTIONS 0	/* of the entry, the stamp or the lease, one by one */
#endif
#ifndef FLUSHES
#define FLUSHES 0	/* Redis loses everything */
#endif
#ifndef EXPIRIES
#define EXPIRIES 0	/* of the lease of a holder that lives, but was stopped */
#endif
#ifndef FAILURES
#define FAILURES 0	/* of calls of Redis: without effect, or with one whose reply is lost */
#endif

#ifndef SOFT
#define SOFT 0	/* a bit for each writer who invalidates softly */
#endif
#ifndef SWR
#define SWR 0	/* a bit for each process whose readers take stale rows */
#endif

/*
 * STRICT: writers put up fences (Config.Strict). REFUSED: a write may be refused by the database. UNSURE: a commit may take
 * effect after its writer was told that nobody knows.
 */

#define NR (R0 + R1)
#define ELSEWHERE 255	/* instead of a version: go and load */
#define EARLY 1
#define ASK 2
#define LOAD 3
#define WITHOUT 254	/* … without the store */
#define LEFT 200	/* nobody who lives has the lease that is there */
#define OF(r) (r < R0 -> 0 : 1)
#define MAX(a, b) (a > b -> a : b)

/*
 * With soft invalidation a stamp, an epoch and a floor have two halves. The upper one of stamps and epochs counts hard
 * invalidations, the lower one soft ones. A floor is what rows that are called fresh must not be older than, and below it
 * what stale ones must not.
 */
#if SOFT
#define HARD(x)	(x >> 4)
#define HARDER	16	/* a step of the upper half */
#define SOFTLY	((SOFT >> id) & 1)
#define RAISE(f, w, softly)	((MAX((f >> 4), w) << 4) | (softly -> f & 15 : MAX((f & 15), w)))
#define FLOOR(f)	(stale -> f & 15 : f >> 4)
#else
#define HARD(x)	x
#define HARDER	1
#define SOFTLY	0
#define RAISE(f, w, softly)	MAX(f, w)
#define FLOOR(f)	f
#endif
#define USABLE	(!stale || ((SWR >> p) & 1))	/* usable */

/* The database. */
byte committed;	/* the version that a query reads now */

/* Redis. Stamps and tokens: 0 is none. A fresh stamp is one that never was before. */
bool ePresent; byte eVer, eStamp, eFence;	/* the entry */
byte lease;	/* the token of the holder */
byte stamp;	/* while there are fences: the one that they keep */
byte lastStamp, lastFence;
#ifdef STRICT
byte fences;	/* a bit for each writer whose fence is around the tag */
byte left;	/* … and who will not lift it any more, because it does not know what has become of its commit */
byte ended;	/* readers and writers */
#define STAMP	(fences == 0 -> stamp : 0)	/* who reads a fenced stamp finds none */
#define FENCED	(fences != 0)
#define ENDED	ended++
#else
#define STAMP	stamp
#define FENCED	false
#define ENDED	skip
#endif

/* The processes. */
byte epoch[2];	/* epochs.slots and epochs.softs, of the one tag */
byte pending[2];	/* epochs.waits */
bool mPresent[2], mStale[2]; byte mVer[2], mMark[2];	/* memory */
bool crashed[2];
chan told[2] = [2] of { byte };	/* messages on their way, with the version they are about (ghost); 128 more: "softened" */

/* The flights, by the reader who leads: of the kind that asks, and of the kind that loads. */
bool asking[NR], loading[NR], owned[NR];	/* owned: a refresh, which nobody joins who has not asked */
byte flightMark[NR];
byte joined[NR];	/* 1 + the leader whose landing a reader waits for */
bool landed[NR], landStale[NR]; byte landVer[NR], landFloor[NR];
bool watching[NR], signal[NR];	/* watchers */

/* Ghosts: what is promised. */
byte own[2];	/* the newest version whose invalidation by this process has returned */
byte heard[2];	/* … whose message this process has heard */
byte all;	/* … whose invalidation anywhere has succeeded */
byte mFloor[2];	/* all, at the moment memory was last compared with Redis */
byte holder;	/* 1 + the reader who was given the lease that is there */
byte loads, started[2];

byte evictions = EVICTIONS, flushes = FLUSHES, expiries = EXPIRIES, failures = FAILURES;

#define VALID(p)	(mPresent[p] && HARD(mMark[p]) == HARD(epoch[p]))	/* memory.get: softOnly */
#ifdef MUT_SOFT_FRESH_IN_MEMORY
#define OLD(p)	mStale[p]
#else
#define OLD(p)	(mStale[p] || mMark[p] != epoch[p])	/* entry.softened */
#endif
#if !SOFT || defined(MUT_SOFT_FRESH_IN_REDIS)
#define SOFTENED(e, s)	false
#else
#define SOFTENED(e, s)	(e != s)	/* compareStamps */
#endif
/* What memory may serve to this reader, and what it is then. */
#define MEMORY	(VALID(p) && (!OLD(p) || ((SWR >> p) & 1)))
#define SERVED	v = mVer[p]; floor = mFloor[p]; stale = OLD(p); memoryOnly = true

/* Mutations, as parts of expressions. */
#ifdef MUT_NO_STAMP_COMPARE
#define STAMPED(e, s)	true
#else
#ifdef MUT_MISSING_IS_VALID
#define STAMPED(e, s)	(e == s || s == 0)
#else
#define STAMPED(e, s)	(s != 0 && HARD(e) == HARD(s))	/* entryCodec.decode: the zero stamp equals nothing */
#endif
#endif

#ifdef MUT_NO_PENDING
#define PENDING(p)	false
#else
#define PENDING(p)	(pending[p] > 0)	/* epochs.isPending */
#endif

#ifdef MUT_FLIGHT_OF_ANY_EPOCH
#define SAME(m)	true
#else
#define SAME(m)	(flightMark[i] == m)	/* flightKey has the mark in it */
#endif

#ifdef MUT_TOKEN_PER_PROCESS
#define TOKEN	(p + 1)
#else
#define TOKEN	(1 + me * READS + n)	/* rand.Text, fresh for every load */
#endif

#ifdef DEAF	/* no subscription: engine.trust is 0, and messages go nowhere */
#ifdef MUT_TRUST_WITHOUT_SUBSCRIPTION
#define TRUSTED	true
#else
#define TRUSTED	false
#endif
#else
#define TRUSTED	true
#endif

/* memory.put: the entry carries the mark from before its rows were read. */
inline remember(p, v, mark, floor) {
	if
#ifdef MUT_MARK_AFTER_READING
	:: true -> mPresent[p] = true; mStale[p] = stale; mVer[p] = v; mMark[p] = epoch[p]; mFloor[p] = floor
#else
	:: HARD(epoch[p]) == HARD(mark) -> mPresent[p] = true; mStale[p] = stale; mVer[p] = v; mMark[p] = mark; mFloor[p] = floor
	:: else
#endif
	fi
}

/* The stamp that stamp.lua makes when there is none. */
inline freshStamp() {
#ifdef MUT_COUNTER
	stamp = 1
#else
	lastStamp = lastStamp + HARDER; stamp = lastStamp
#endif
}

/*
 * The message of put.lua and release.lua, and engine.tellHere: who watches is told. It need not take time: who is told
 * may take any time to go on.
 */
inline tellWaiters() {
	i = 0;
	do
	:: i < NR ->
		if
		:: watching[i] -> signal[i] = true
#ifdef LOSSY
		:: OF(i) != p && watching[i]
#endif
		:: else
		fi; i++
	:: else -> break
	od;
	i = 0
}

/* release.lua */
inline release() {
	if
#ifdef MUT_RELEASE_ANOTHERS
	:: lease != 0 ->
#else
	:: lease == token && lease != 0 ->
#endif
		assert(holder == me + 1);	/* nobody gives back what is another's */
		lease = 0; holder = 0; tellWaiters()
	:: else
	fi
}

/* The end of a flight that has no rows to give. */
inline letGo(code) {
	i = 0;
	do
	:: i < NR ->
		if
		:: joined[i] == me + 1 -> joined[i] = 0; landed[i] = true; landVer[i] = code
		:: else
		fi; i++
	:: else -> break
	od;
	i = 0; asking[me] = false; loading[me] = false; owned[me] = false
}

#define OTHERS(what)	(OF(i) == p && i != me && what && SAME(mark))

/*
 * A reader: queryState.fromMemory, then engine.await, lead, obtainAndLoad, loadAndStore. A hit is fresh or stale as it
 * comes; who finds stale rows is served, and goes on as the refresh (engine.refresh, runRefresh).
 */
proctype Reader(byte p; byte me) {
	byte n, i, mark, v, floor, s, ev, es, token, fence;
	byte ownFloor, heardFloor, allFloor;
	bool won, refreshing, ep, shared, memoryOnly, present;
	bool stale;	/* the rows are called so */
	byte stored;	/* ghost: what a refresh of this reader has put into Redis */
	byte kind;	/* of the flight that was joined */
	{
	/* Readers of one process are alike: let them begin in one order. */
	atomic { started[p] == me - p * R0 -> started[p]++ }
next:	atomic {
		v = 0; floor = 0; s = 0; ev = 0; es = 0; token = 0; fence = 0; mark = 0; i = 0;
		won = false; refreshing = false; ep = false; shared = false; memoryOnly = false; present = false; stale = false; kind = 0;
		ownFloor = 0; heardFloor = 0; allFloor = 0;
		if
		:: n == READS -> goto done
		:: else -> n++
		fi;
		/* The read begins: what it must not be older than. */
		ownFloor = own[p]; heardFloor = heard[p]; allFloor = all;
		/* engine.look: trust may be over at any time */
		if
		:: MEMORY && TRUSTED -> SERVED; goto serve
		:: true
		fi;
		/* engine.await, flight: join the load that somebody waits for */
		mark = epoch[p]; i = 0;
		do
		:: i < NR && OTHERS(loading[i] && !owned[i]) -> joined[me] = i + 1; landed[me] = false; i = 0; kind = EARLY; goto follow
		:: i < NR && !OTHERS(loading[i] && !owned[i]) -> i++
		:: i == NR -> break
		od;
		i = 0
	}
asks:	atomic {
		i = 0;
		do
		:: i < NR && OTHERS(asking[i]) -> joined[me] = i + 1; landed[me] = false; i = 0; kind = ASK; goto follow
		:: i < NR && !OTHERS(asking[i]) -> i++
		:: i == NR -> break
		od;
		i = 0;
		asking[me] = true; flightMark[me] = mark;
		/* engine.ask: look again */
		if
		:: MEMORY && TRUSTED -> SERVED; goto land
		:: true
		fi;
		shared = !PENDING(p);
		if
		:: !shared && MEMORY -> SERVED; goto land
		:: !shared && !(MEMORY) -> letGo(WITHOUT); goto load
		:: else
		fi
	}
	/* engine.fetch, redisStore.get: entry and stamps are on different servers, and no transaction */
ask:	atomic { ep = ePresent; ev = eVer; es = eStamp; floor = all }
	atomic {
		s = STAMP;
		if
		:: failures > 0 -> failures--;
			/* Redis is away: what memory has is within its TTL */
			if
			:: MEMORY -> SERVED; goto land
			:: else -> shared = false; letGo(WITHOUT); goto load
			fi
		:: ep && STAMPED(es, s) -> v = ev; stale = SOFTENED(es, s); remember(p, v, mark, floor);
			if
			:: USABLE -> goto land
			:: else -> stale = false; v = 0; letGo(ELSEWHERE)
			fi
		:: !(ep && STAMPED(es, s)) ->
			/* nobody shall be served from memory what Redis has no more */
			if
			:: VALID(p) -> mPresent[p] = false
			:: else
			fi;
			letGo(ELSEWHERE)
		fi
	}
load:	/* engine.load: the flight of the second kind; a refresh may be under way */
	atomic {
		i = 0;
		do
		:: i < NR && OTHERS(loading[i]) ->
			if
			:: refreshing -> i = 0; goto next	/* flight.Group.Start */
			:: else -> joined[me] = i + 1; landed[me] = false; i = 0; kind = LOAD; goto follow
			fi
		:: i < NR && !OTHERS(loading[i]) -> i++
		:: i == NR -> break
		od;
		i = 0;
		loading[me] = true; owned[me] = refreshing; flightMark[me] = mark;
		if
		:: !shared -> goto query
		:: else
		fi
	}
	/* engine.obtain: watch before asking, or the message may pass between the two */
obtain:
#ifndef MUT_WATCH_AFTER_ASKING
	atomic { watching[me] = true; signal[me] = false }
#endif
	atomic {	/* obtain.lua */
		token = TOKEN;
		if
		:: failures > 0 -> failures--; watching[me] = false; shared = false; goto query
#ifdef STRICT
		/*
		 * A load that nobody else can use: engine.withoutLease. That it gives a lease back that it was given together with
		 * this news is left out.
		 */
		:: FENCED -> watching[me] = false; shared = false; goto query
#endif
		:: !FENCED && (lease == 0 || lease == token) ->
			assert(holder == 0 || holder == me + 1);	/* one holder at a time */
			lease = token; holder = me + 1; won = true; present = ePresent; watching[me] = false;
			lastFence++; fence = lastFence
		:: !FENCED && lease != 0 && lease != token -> won = false
		fi;
#ifndef MUT_STAMPS_AFTER_LOAD
		/* stamp.lua, in the same trip: on another server, but nobody can tell */
		if
		:: stamp == 0 -> freshStamp()
		:: else
		fi;
		s = stamp;
#endif
		ep = false; ev = 0; es = 0
	}
	if
	:: won -> goto mine
	:: !won && refreshing -> goto elsewhere
	:: !won && !refreshing
	fi;
#ifdef MUT_WATCH_AFTER_ASKING
	atomic { watching[me] = true; signal[me] = false }
#endif
	/* the select of engine.obtain: a message, or a pause that ends */
	atomic {
#ifdef NO_POLL
		(signal[me])
#else
		(signal[me] || lease == 0)
#endif
		-> watching[me] = false; signal[me] = false
	}
	atomic { ep = ePresent; ev = eVer; es = eStamp; floor = all }
	atomic {
		s = STAMP;
		if
		:: ep && STAMPED(es, s) -> v = ev; stale = SOFTENED(es, s); remember(p, v, mark, floor);
			if
			:: USABLE -> goto land
			:: else -> stale = false; v = 0; goto obtain
			fi
		:: else -> goto obtain
		fi
	}

mine:	/* somebody may have stored between our look and the lease */
#ifndef MUT_NO_SECOND_LOOK
	if
	:: !present
	:: present ->
		atomic { ep = ePresent; ev = eVer; es = eStamp; floor = all }
		atomic {
			if
			:: ep && STAMPED(es, STAMP) && !refreshing -> v = ev; stale = SOFTENED(es, STAMP); remember(p, v, mark, floor);
				if
				:: USABLE -> release(); goto land
				:: else -> stale = false; v = 0
				fi
			:: else
			fi
		}
	fi;
#endif
query:	/* engine.loadAndStore: checked is from before the query */
	atomic {
		floor = all; stale = false;
#ifdef ONE_LOAD
		loads++; assert(loads == 1)
#endif
	}
	v = committed;	/* the database answers as of one moment of the query */
	atomic {
#ifdef MUT_STAMPS_AFTER_LOAD
		if
		:: shared && stamp == 0 -> freshStamp()
		:: else
		fi;
		s = stamp;
#endif
#ifdef MUT_CHECKED_AT_THE_END
		floor = all;
#endif
		remember(p, v, mark, floor);
		if
		:: !won -> goto land
		:: won && PENDING(p) -> release(); goto land
		:: else
		fi
	}
	atomic {	/* put.lua */
		if
		:: failures > 0 -> failures--
#ifdef MUT_NO_FENCE
		:: true ->
#else
		:: lease == token || (lease == 0 && !(ePresent && eFence > fence)) ->
#endif
			/* What was loaded under an earlier lease never replaces what was loaded under a later one. */
			assert(!(ePresent && eFence > fence));
			ePresent = true; eVer = v; eStamp = s; eFence = fence;
#if SOFT
			if
			:: refreshing -> stored = v
			:: else
			fi;
#endif
			if
			:: lease == token -> lease = 0; holder = 0
			:: else
			fi;
			tellWaiters()
#ifndef MUT_NO_FENCE
		:: !(lease == token || (lease == 0 && !(ePresent && eFence > fence)))
#endif
		fi
	}

land:	/* The flights land: those who have joined get the same. */
	atomic {
		i = 0;
		do
		:: i < NR ->
			if
			:: joined[i] == me + 1 -> joined[i] = 0; landed[i] = true; landVer[i] = v; landFloor[i] = floor; landStale[i] = stale
			:: else
			fi; i++
		:: else -> break
		od;
		i = 0; asking[me] = false; loading[me] = false; owned[me] = false; flightMark[me] = 0;
		if
		:: won && holder == me + 1 -> holder = LEFT	/* the call that would have given it back has failed */
		:: else
		fi;
		s = 0; ev = 0; es = 0; ep = false; token = 0; fence = 0; won = false; shared = false; present = false; mark = 0;
		if
		:: refreshing -> goto next
		:: else -> goto serve
		fi
	}
follow:	atomic {
		landed[me] -> landed[me] = false; v = landVer[me]; floor = landFloor[me]; stale = landStale[me]; landVer[me] = 0; landFloor[me] = 0; landStale[me] = false;
		if
		:: kind == ASK && v == ELSEWHERE -> shared = true; v = 0; goto load
		:: kind == ASK && v == WITHOUT -> shared = false; v = 0; goto load
		:: kind == LOAD && v == ELSEWHERE -> v = 0; goto load
		:: else
		fi;
		memoryOnly = true;
#ifndef MUT_BELIEVE_ALWAYS
		/* engine.believes: the rows of a load that began before count like those of memory */
		if
		:: kind != ASK && !TRUSTED && kind == EARLY -> memoryOnly = false; stale = false; goto asks
		:: kind != ASK && !TRUSTED && kind == LOAD -> memoryOnly = false; stale = false; goto load
		:: else
		fi;
#endif
		goto land
	}
elsewhere:	/* errElsewhere: who has joined the refresh tries for itself */
	atomic { letGo(ELSEWHERE); flightMark[me] = 0; watching[me] = false; goto next }
serve:	/* THE PROMISES */
	atomic {
		ownFloor = FLOOR(ownFloor); heardFloor = FLOOR(heardFloor); allFloor = FLOOR(allFloor); floor = FLOOR(floor);
		assert(USABLE);	/* nobody gets stale rows who does not take them */
		assert(v >= stored);	/* when a refresh has ended, its rows are served */
		assert(v >= ownFloor);
		assert(v >= heardFloor);
		if
#ifdef DEAF
		:: memoryOnly && kind != ASK -> assert(v >= allFloor)	/* nothing is believed that was not compared since the read began */
		:: memoryOnly && kind == ASK -> assert(v >= floor)
#else
		:: memoryOnly -> assert(v >= floor)
#endif
		:: else -> assert(v >= allFloor)
		fi;
		memoryOnly = false;
		if
		:: goto next
#ifdef NO_REFRESH
		:: stale -> stale = false; refreshing = true; mark = epoch[p]; shared = !PENDING(p); goto load
#else
		:: stale = false; refreshing = true; mark = epoch[p]; shared = !PENDING(p); goto load
#endif
		fi
	}
	} unless { crashed[p] };
done:	ENDED
}

/* The message of invalidate.lua: it may come late, out of step with everything else, or never. */
inline tellOthers() {
#ifndef DEAF
	if
	:: nfull(told[1 - p]) -> told[1 - p]!(w | (SOFTLY << 7))
#ifdef LOSSY
	:: true
#else
	:: full(told[1 - p])
#endif
	fi
#else
	skip
#endif
}

#ifdef STRICT
#define MINE	(1 << id)
/* The commit. Whose fence is there has told everybody, whatever becomes of it. */
inline commitFenced() { atomic { committed++; w = committed; all = MAX(all, w) } }
/* lift.lua, fences.lua: the writer's own fence goes */
#ifdef MUT_LIFT_ANOTHERS
inline lift() { fences = 0 }
#else
inline lift() { fences = fences & (255 - MINE) }
#endif
#endif

/* A writer: tx.Commit or conn.exec, then Herd.settle. */
proctype Writer(byte p; byte id) {
	byte w;
#ifdef MUT_SOFT_REVIVES
	byte before;
#endif
	{
#ifdef STRICT
	bool unsure;
#ifdef MUT_FENCE_AFTER_COMMIT
	commitFenced();
#endif
#ifndef MUT_NO_WRITE_FENCE
	atomic { fences = fences | MINE; tellOthers() }	/* fence.lua */
#endif
	if
#ifdef REFUSED
	:: true -> atomic { lift(); goto done }	/* the stamp that it kept holds again: nobody has written */
#endif
#ifdef UNSURE
	:: true -> unsure = true	/* the caller has its error, and the commit is under way */
#endif
	:: true ->
#ifndef MUT_FENCE_AFTER_COMMIT
		commitFenced()
#else
		skip
#endif
	fi;
#else
#ifdef MUT_BUMP_BEFORE_COMMIT
	w = committed + 1;
#else
	atomic { committed++; w = committed }
#endif
#endif
	atomic { pending[p]++; epoch[p] = epoch[p] + (SOFTLY -> 1 : HARDER) }	/* Herd.invalidate: epochs.hold, epochs.move */
#ifdef MUT_SOFT_REVIVES
	before = stamp;
#endif
trip:	/* redisStore.invalidate or soften; later retryQueue.flush */
#ifdef MUT_MESSAGE_BEFORE_STAMP
	atomic { tellOthers() }
#endif
	atomic {
		if
		:: failures > 0 -> failures--; own[p] = RAISE(own[p], w, SOFTLY);
			if
			:: true
			:: stamp = 0; tellOthers()	/* the reply is lost */
			fi;
#ifdef MUT_FORGET_FAILED
			pending[p]--; goto done
#else
			goto trip
#endif
		:: true
		fi;
#if SOFT
		if
		:: SOFTLY ->	/* soften.lua */
#ifdef MUT_SOFT_TOLD_NOWHERE
			goto ends
#endif
			if
#ifdef MUT_SOFT_REVIVES
			:: before != 0 -> stamp = before + 1
#else
			:: stamp != 0 -> stamp++
#endif
			:: else	/* nothing is valid, and nothing becomes so */
			fi;
			tellOthers(); goto ends
		:: else
		fi;
#endif
		/* invalidate.lua */
#ifdef MUT_COUNTER
		if
		:: stamp > 0 -> stamp++
		:: else
		fi;
#else
		stamp = 0;
#endif
#ifdef STRICT
		if
#ifdef MUT_LIFT_WHEN_UNSURE
		:: true -> lift()	/* lift.lua, in the same script */
#else
		:: !unsure -> lift()
		:: unsure
#endif
		fi;
#endif
#ifndef MUT_MESSAGE_BEFORE_STAMP
		tellOthers()
#endif
	}
#ifdef STRICT
	if
	:: unsure -> pending[p]--; commitFenced(); left = left | MINE; goto done
	:: else
	fi;
#endif
ends:
#ifdef MUT_BUMP_BEFORE_COMMIT
	pending[p]--;
	atomic { committed++; own[p] = MAX(own[p], w); all = MAX(all, w) }
#else
	atomic { pending[p]--; own[p] = RAISE(own[p], w, SOFTLY); all = RAISE(all, w, SOFTLY) }
#endif
	} unless { crashed[p] };
done:	ENDED
}

#ifdef MUT_SOFT_MESSAGE_IGNORED
#define MOVED	(w >> 7 -> 0 : HARDER)
#else
#define MOVED	(w >> 7 -> 1 : HARDER)
#endif

/* All that happens by itself. */
proctype World() {
	byte w, i;
end:	do
	:: atomic { told[0]?w -> heard[0] = RAISE(heard[0], (w & 127), (w >> 7));
#ifndef MUT_MESSAGE_IGNORED
		epoch[0] = epoch[0] + MOVED;	/* engine.invalidatedElsewhere, softenedElsewhere */
#endif
		w = 0
	}
	:: atomic { told[1]?w -> heard[1] = RAISE(heard[1], (w & 127), (w >> 7));
#ifndef MUT_MESSAGE_IGNORED
		epoch[1] = epoch[1] + MOVED;
#endif
		w = 0
	}
#if EVICTIONS > 0
	:: atomic { evictions > 0 && ePresent -> evictions--; ePresent = false; eVer = 0; eStamp = 0; eFence = 0 }
	:: atomic { evictions > 0 && stamp != 0 -> evictions--; stamp = 0 }
	:: atomic { evictions > 0 && lease != 0 -> evictions--; lease = 0; holder = 0 }
#endif
#if FLUSHES > 0
	:: atomic { flushes > 0 -> flushes--; ePresent = false; eVer = 0; eStamp = 0; eFence = 0; stamp = 0; lease = 0; holder = 0 }
#endif
#if EXPIRIES > 0
	:: atomic { expiries > 0 && lease != 0 -> expiries--; lease = 0; holder = 0 }
#endif
#ifndef MUT_LEASE_WITHOUT_END
	:: atomic { (holder == LEFT || (holder != 0 && crashed[OF(holder - 1)])) -> lease = 0; holder = 0 }	/* PX of a lease that nobody renews */
#endif
#ifdef CRASH
	:: atomic { !crashed[1] -> crashed[1] = true; mPresent[1] = false; mStale[1] = false; mVer[1] = 0; mMark[1] = 0; mFloor[1] = 0; pending[1] = 0; i = R0;
		do
		:: i < NR -> asking[i] = false; loading[i] = false; owned[i] = false; joined[i] = 0; watching[i] = false; signal[i] = false; flightMark[i] = 0; i++
		:: else -> break
		od; i = 0 }
#endif
#ifdef STRICT
#ifndef MUT_FENCE_WITHOUT_END
	/* The fence of a writer that gives no sign of life any more ends, and the stamp that it kept with it. */
	:: atomic { (fences & left) != 0 || (crashed[1] && (fences >> W0) != 0) ->
		if
		:: (fences & left) != 0 -> fences = fences & (255 - left)
		:: else -> fences = fences & ((1 << W0) - 1)
		fi;
#ifndef MUT_FENCE_ENDS_WITHOUT_STAMP
		stamp = 0
#endif
	}
#endif
#endif
#if UNSEEN > 0
	:: atomic { committed < UNSEEN -> committed++ }
#endif
	od
}

init {
	byte i;
	atomic {
		i = 0;
		do
		:: i < NR -> run Reader(OF(i), i); i++
		:: else -> break
		od;
		i = 0;
		do
		:: i < W0 -> run Writer(0, i); i++
		:: else -> break
		od;
		i = 0;
		do
		:: i < W1 -> run Writer(1, W0 + i); i++
		:: else -> break
		od;
		i = 0;
		run World()
	}
#ifdef STRICT
	(ended == NR + W0 + W1);
	(fences == 0)	/* no fence outlives everybody: who reads now may cache again */
#endif
}
