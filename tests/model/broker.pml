/* The broker's protocol (docs/formats/broker.md) with one publisher, one reader of the same user,
 * one client of another user that is granted nothing, and one export of one block. Any client may
 * be killed at any point; the broker may be killed once, or cut one client off once. `spin -a`
 * makes a program of it that visits every state; tests/model/run.sh says what is checked.
 *
 * What a client process really does is told apart from what the broker sees of it: a process that
 * is killed closes its sockets first (HALF), and its work may go on until it is dead. A reader may
 * have no sign of death (`sign`).
 *
 * What holds in every state: the publisher reuses the block, and is told that it may, only when no
 * work of a reader is left; no export is opened, nor may be, after a withdrawal was answered, by a
 * broker and its successor; pages go to nobody without a grant; a lease that the broker confirmed is
 * counted until it ends. And in every state in which nothing can happen any more: whoever was not
 * killed came to its end, no lease is left, and no set but one whose export was to stay.
 *
 * Revoking is withdrawing here: what it adds is a notice. Left out: names and versions, directories,
 * several pages and exports, quotas, and notices that are lost because a client does not read them.
 * So it is not shown what happens if the broker dies while a client that it cut off has not come
 * back: such a reader may announce as open a kept export that was withdrawn meanwhile.
 *
 * A mistake is seeded by defining one of the names that begin with BUG_. */

#define P 0 /* publisher */
#define R 1 /* reader, of the same user */
#define X 2 /* another user's */

#define granted(c) (c != X)

/* ---- what is so ---- */

mtype = { RUNNING, EXITING, DEAD };
mtype phase[2] = RUNNING;
bool done[2];      /* it ended its part in order; the process may live on */
bool uses;         /* work of the reader on the block may be under way */
bool sign[2] = 1;  /* the broker gets a pidfd */
bool keeps;        /* the export is to outlive its publisher */
bool started;
bool refused;      /* a withdrawal was answered: nobody may open the export from here on */
bool listed[3];    /* the broker has answered that the client has a lease */
byte faults = 1;   /* that the broker may still suffer */

/* ---- the sockets ---- */

mtype = { OFF, UP, HALF, CUT }; /* HALF: the client's end is closed; CUT: the broker's is */
mtype link[2] = OFF;
mtype = { HELLO, SET, SET_AGAIN, PUBLISH, PUBLISH_AGAIN, HOLD_AGAIN, OPEN, PAGES, CLOSE, WITHDRAW,
          DROP, LEASE };
chan q[2] = [1] of { mtype, bit };
chan r[2] = [0] of { bit }; /* taken as soon as it is sent: what is lost on the way, is lost before */
mtype = { WITHDRAWN, IDLE, IDLE_UNCLEAN };
chan n[2] = [3] of { mtype };

/* ---- what the broker knows: gone when it dies ---- */

mtype = { NONE, OPENABLE, HELD, CLOSED }; /* HELD: closed until its publisher announces it */
bool up = 1;
bool known[3];
bool set, publisher;       /* pages are here; their publisher is not known to be gone */
mtype export = NONE;
bool kept, again, unclean; /* of the export. again: an earlier broker may have leased it */
bool announced;            /* by its publisher */
bool lease[3], pending[3];
bool opened[3];            /* the lease comes from OPEN, not from LEASE */
mtype owed = NONE;         /* IDLE for a publisher that is cut off */
bool over;                 /* the export was withdrawn in this broker's time, and is forgotten but
                              for its id, which the broker keeps unless it gave it itself */

inline hang_up(c) {
    do
    :: q[c]?_, _
    :: empty(q[c]) -> break
    od
}

inline notify(c, what) {
    if
    :: link[c] == UP || link[c] == CUT -> n[c]!what
    :: else
    fi
}

/* Ends what is over. */
inline settle() {
    assert(!(refused && export == OPENABLE));
    if
    :: (export == CLOSED || export == HELD) && !lease[P] && !lease[R] && !lease[X] ->
        assert(!listed[R]); /* the lease of a reader that relies on it was lost */
        if
#ifndef BUG_IDLE_TOO_SOON
        :: publisher && announced ->
#else
        :: publisher ->
#endif
#ifndef BUG_RESTART_IS_CLEAN
            owed = (unclean || again -> IDLE_UNCLEAN : IDLE)
#else
            owed = (unclean -> IDLE_UNCLEAN : IDLE)
#endif
        :: else
        fi;
#ifndef BUG_FORGETS_WITHDRAWN
        over = over || export == CLOSED;
#endif
        announced = 0;
        export = NONE; kept = 0; again = 0; unclean = 0
    :: else
    fi;
    if
    :: owed != NONE && link[P] == UP && known[P] -> n[P]!owed; owed = NONE
    :: else
    fi;
    if
    :: set && export == NONE && !publisher && !pending[R] -> set = 0
    :: else
    fi
}

/* The client's process is dead, or, where that is never told, its connection ended. */
inline gone() {
    known[c] = 0; pending[c] = 0; opened[c] = 0; listed[c] = 0;
    if
    :: lease[c] ->
        lease[c] = 0;
        if
        :: !clean -> unclean = 1
        :: else
        fi
    :: else
    fi;
    if
    :: c == P && publisher ->
        publisher = 0;
        owed = NONE;
        if
        :: export == OPENABLE && !kept -> export = CLOSED
        :: else
        fi
    :: else
    fi
}

/* Leases that were told before the export was. */
inline match(who) {
    if
    :: pending[who] ->
        pending[who] = 0;
#ifndef BUG_PENDING_UNCHECKED
        lease[who] = granted(who);
#else
        lease[who] = 1;
#endif
        listed[who] = lease[who]
    :: else
    fi
}

inline lose_all() {
    up = 0;
    set = 0; publisher = 0; owed = NONE; over = 0;
    export = NONE; kept = 0; again = 0; unclean = 0; announced = 0;
    for (i : 0 .. 2) {
        known[i] = 0; lease[i] = 0; pending[i] = 0; opened[i] = 0; listed[i] = 0
    }
    i = 0;
    hang_up(P);
    hang_up(R);
    link[P] = (link[P] == UP || link[P] == CUT -> CUT : OFF);
    link[R] = (link[R] == UP || link[R] == CUT -> CUT : OFF)
}

/* The broker may die here, with what it sent so far. */
inline may_die() {
    if
    :: !faults
    :: faults -> faults = 0; lose_all(); goto down
    :: faults
    fi
}

inline on_withdraw() {
    ok = export != NONE && granted(c);
    if
    :: ok ->
        if
        :: export != CLOSED ->
            export = CLOSED;
#ifndef BUG_UNTOLD
            if
            :: c != P && publisher -> notify(P, WITHDRAWN)
            :: else
            fi;
            if
            :: c != R && lease[R] -> notify(R, WITHDRAWN)
            :: else
            fi
#endif
        :: else
        fi;
        may_die();
        refused = 1
    :: else
    fi
}

inline handle() {
    ok = 1;
    if
    :: type == HELLO ->
        ok = arg && known[c]; /* whether it goes on where it was */
        known[c] = 1
    :: type == SET || type == SET_AGAIN ->
        set = 1; publisher = 1
    :: type == PUBLISH ->
        export = OPENABLE; announced = 1; kept = arg
    :: type == PUBLISH_AGAIN ->
        if
        :: arg -> export = CLOSED
#ifndef BUG_REOPENS
        :: !arg && (export == CLOSED || over) -> /* withdrawn since this broker started */
            notify(P, WITHDRAWN);
            export = CLOSED
        :: !arg && export != CLOSED && !over -> export = OPENABLE
#else
        :: !arg -> export = OPENABLE
#endif
        fi;
        announced = 1; kept = keeps; again = 1;
        match(R);
        match(X)
    :: type == HOLD_AGAIN -> /* a reader's makes one only where there is none, but withdraws any */
        if
        :: export == NONE ->
            set = 1;
#ifndef BUG_HOLDER_OPENS
            export = (arg || over -> CLOSED : (keeps -> OPENABLE : HELD));
#else
            export = OPENABLE;
#endif
            kept = keeps; again = 1;
            match(R);
            match(X)
        :: arg && (export == OPENABLE || export == HELD) ->
            export = CLOSED;
            if
            :: publisher && announced -> notify(P, WITHDRAWN)
            :: else
            fi
        :: else
        fi
    :: type == OPEN ->
#ifndef BUG_OPENS_WITHDRAWN
        ok = export == OPENABLE && granted(c);
#else
        ok = export != NONE && granted(c);
#endif
        if
        :: ok ->
            assert(!refused && granted(c));
            lease[c] = 1; opened[c] = 1; listed[c] = 1
        :: else
        fi
    :: type == LEASE ->
        if
        :: export != NONE ->
            ok = granted(c);
            lease[c] = lease[c] || ok
        :: else ->
#ifndef BUG_PENDING_LOST
            pending[c] = 1
#endif
        fi;
        listed[c] = ok
    :: type == PAGES ->
#ifndef BUG_PENDING_UNCHECKED
        ok = lease[c] && opened[c];
#else
        ok = lease[c];
#endif
        assert(!ok || (set && granted(c)))
    :: type == CLOSE ->
        lease[c] = 0; pending[c] = 0; opened[c] = 0; listed[c] = 0
    :: type == WITHDRAW -> on_withdraw()
    :: type == DROP ->
        publisher = 0;
        if
        :: export == OPENABLE && !kept -> export = CLOSED
        :: else
        fi
    fi
}

inline forget() {
    event = 0; type = 0; arg = 0; left = 0; clean = 0; c = 0
}

inline answer() {
    if
    :: event == REQUEST && link[c] == UP && phase[c] == RUNNING ->
        if
        :: c == P && ok -> forget(); ok = 0; r[P]!1
        :: c == R && ok -> forget(); ok = 0; r[R]!1
        :: c == P && !ok -> forget(); r[P]!0
        :: c == R && !ok -> forget(); r[R]!0
        fi
    :: else -> forget(); ok = 0
    fi
}

inline on_hangup() {
    hang_up(c);
    link[c] = OFF;
#ifndef BUG_HANGUP_IS_DEATH
    left = known[c] && !sign[c];
    clean = 0
#else
    left = known[c];
    clean = 1
#endif
}

inline on_death() {
#ifndef BUG_DEAD_MAY_ASK
    hang_up(c);
    link[c] = OFF;
#endif
    left = 1;
    clean = 1
}

inline on_slow() { /* cut off between requests: one that was not read is not done */
    faults = 0;
    hang_up(c);
    link[c] = CUT;
    left = known[c] && !sign[c];
    clean = 0
}

/* A client that is granted nothing asks for everything, and for a lease above all. What is refused
 * changes nothing, so it needs no process and no socket: it asks once, at any time, and dies at any
 * later one, after it has asked again. */
mtype = { ABSENT, ASKED, PASSED };
mtype stranger = ABSENT;

inline on_stranger() {
    known[X] = 1;
    for (i : 1 .. 4) {
        type = (i == 1 -> OPEN : (i == 2 -> LEASE : (i == 3 -> PAGES : WITHDRAW)));
        handle();
        assert(!ok || type == LEASE)
    }
    i = 0;
    type = 0;
    ok = 0;
    left = stranger == ASKED;
    clean = 1;
    stranger = (left -> PASSED : ASKED)
}

#define asked(c) ((link[c] == UP || link[c] == HALF) && nempty(q[c]))
#define hung(c)  (link[c] == HALF)
#define died(c)  (known[c] && sign[c] && phase[c] == DEAD)
#define slow(c)  (started && faults && link[c] == UP && phase[c] == RUNNING)

mtype = { REQUEST, HANGUP, DEATH, SLOW, STRANGE, CRASH };

active proctype broker() {
    mtype event, type;
    bit arg, ok, left, clean;
    byte c, i;
end_serving:
    do
    :: atomic {
        if
        :: asked(P) -> c = P; event = REQUEST
        :: asked(R) -> c = R; event = REQUEST
        :: hung(P) -> c = P; event = HANGUP
        :: hung(R) -> c = R; event = HANGUP
        :: died(P) -> c = P; event = DEATH
        :: died(R) -> c = R; event = DEATH
        :: slow(P) -> c = P; event = SLOW
        :: slow(R) -> c = R; event = SLOW
#ifdef STRANGER
        :: started && stranger != PASSED -> c = X; event = STRANGE
#endif
        :: started && faults -> faults = 0; event = CRASH
        fi;
        if
        :: event == CRASH -> lose_all(); goto down
        :: event == REQUEST -> q[c]?type, arg; handle()
        :: event == HANGUP -> on_hangup()
        :: event == DEATH -> on_death()
        :: event == SLOW -> on_slow()
        :: event == STRANGE -> on_stranger()
        fi;
        if
        :: left -> gone()
        :: else
        fi;
        settle();
        may_die();
        answer()
    }
    od;
down:
    atomic { forget(); up = 1 }; /* started again */
    goto end_serving
}

/* ---- clients ---- */

/* Asks and waits. lost: the connection ended first. */
inline call(c, what, a) {
    lost = 0;
    ok = 0;
    if
    :: link[c] == UP ->
        q[c]!what, a;
        if
        :: r[c]?ok
        :: link[c] != UP -> lost = 1
        fi
    :: link[c] != UP -> lost = 1
    fi
}

inline connect(c) {
    link[c] = UP;
    call(c, HELLO, greeted);
    greeted = 1
}

inline close_socket(c) {
    done[c] = 1;
    link[c] = (link[c] == UP -> HALF : OFF)
}

mtype = { START, MADE, LIVE, WAITING, FREED, HAVE, USING, CLOSING, OVER };

inline hear(c) { /* what is in the notice socket */
    do
    :: n[c]?WITHDRAWN -> withdrawn = 1
    :: n[c]?IDLE -> assert(withdrawn); idle = 1 /* never of what it takes for open */
    :: n[c]?IDLE_UNCLEAN -> assert(withdrawn); idle = 2
    :: empty(n[c]) -> break
    od
}

/* After the connection ended: connects, and tells a new broker what it does not know. */
inline publisher_returns() {
    hear(P);
    connect(P);
    if
    :: !lost && !ok && at != START ->
        call(P, SET_AGAIN, 0);
        if
        :: !lost && at != MADE && !idle -> call(P, PUBLISH_AGAIN, withdrawn)
        :: else
        fi
    :: else
    fi
}

active proctype publisher_process() {
    mtype at = START;
    bit lost, ok, greeted, withdrawn;
    byte idle;
    started;
    {
        do
        :: atomic { link[P] != UP && up && at != OVER -> publisher_returns(); lost = 0; ok = 0 }
        :: atomic { link[P] == UP && at == START ->
            call(P, SET, 0);
            at = (lost -> at : MADE);
            lost = 0; ok = 0 }
        :: atomic { link[P] == UP && at == MADE ->
            call(P, PUBLISH, keeps);
            at = (lost -> at : LIVE);
            lost = 0; ok = 0 }
        :: atomic { link[P] == UP && at == LIVE ->
            withdrawn = 1; /* whatever becomes of the answer */
            call(P, WITHDRAW, 0);
#ifndef BUG_REUSES_EARLY
            at = (lost -> at : WAITING);
#else
            assert(lost || !uses);
#endif
            lost = 0; ok = 0 }
        :: atomic { at == LIVE -> at = FREED }
        :: atomic { at == LIVE && nempty(n[P]) -> hear(P); at = WAITING }
        :: atomic { at == WAITING && (idle || nempty(n[P])) ->
            hear(P);
            if
#ifndef BUG_UNCLEAN_REUSED
            :: idle == 1 -> assert(!uses); at = FREED
            :: idle == 2 -> at = FREED
#else
            :: idle -> assert(!uses); at = FREED
#endif
            :: !idle
            fi }
        :: atomic { link[P] == UP && at == FREED ->
            call(P, DROP, 0);
            at = (lost -> at : OVER);
            lost = 0; ok = 0 }
        :: atomic { at == OVER -> close_socket(P); break }
        od
    } unless { phase[P] != RUNNING }
}

inline reader_returns() {
    hear(R);
    connect(R);
    if
    :: !lost && !ok && (at == USING || at == HAVE) ->
        call(R, LEASE, 0); /* first, so that what it announces then is in use at once */
        if
        :: !lost && at == USING -> call(R, HOLD_AGAIN, withdrawn)
        :: else
        fi
    :: else
    fi
}

active proctype reader() {
    mtype at = START;
    bit lost, ok, greeted, withdrawn, may_withdraw = 1;
    byte idle;
    started;
    {
        do
        :: atomic { link[R] != UP && up && at != OVER -> reader_returns(); lost = 0; ok = 0 }
        :: atomic { link[R] == UP && at == START ->
            call(R, OPEN, 0);
            at = (lost -> at : (ok -> HAVE : OVER));
            lost = 0; ok = 0 }
        :: atomic { link[R] == UP && at == HAVE ->
            call(R, PAGES, 0);
            at = (lost -> at : (ok -> USING : CLOSING));
            uses = at == USING;
            lost = 0; ok = 0 }
        :: atomic { link[R] == UP && at == USING && may_withdraw ->
            withdrawn = 1;
            call(R, WITHDRAW, 0);
            may_withdraw = lost;
            if
            :: !lost -> call(R, OPEN, 0) /* in vain */
            :: else
            fi;
            lost = 0; ok = 0 }
        :: atomic { at == USING ->
#ifndef BUG_CLOSES_EARLY
            uses = 0;
#endif
            at = CLOSING }
        :: atomic { link[R] == UP && at == CLOSING ->
            call(R, CLOSE, 0);
            uses = uses && lost;
            at = (lost -> at : OVER);
            lost = 0; ok = 0 }
        :: atomic { at == OVER -> close_socket(R); break }
        od
    } unless { phase[R] != RUNNING }
}

/* Kills processes, and ends them: first their sockets, then the rest. */

inline close_files(c) {
    link[c] = (link[c] == UP -> HALF : OFF)
}
#define closes(c)  (phase[c] == EXITING && (link[c] == UP || link[c] == CUT))
#define ends(c)    (phase[c] == EXITING && link[c] != UP && link[c] != CUT)
#define is_over(c) (phase[c] == DEAD || done[c])

inline choose(bit_) {
    if
    :: bit_ = 0
    :: bit_ = 1
    fi
}

active proctype kernel() {
    bool doomed[2];
    atomic {
#ifndef STRANGER
        choose(doomed[P]);
        choose(doomed[R]);
#endif
        choose(sign[R]);
        choose(keeps);
        started = 1
    };
    do
    :: atomic { doomed[P] && phase[P] == RUNNING && !done[P] -> phase[P] = EXITING }
    :: atomic { doomed[R] && phase[R] == RUNNING && !done[R] -> phase[R] = EXITING }
    :: atomic { closes(P) -> close_files(P) }
    :: atomic { closes(R) -> close_files(R) }
    :: atomic { ends(P) -> phase[P] = DEAD }
    :: atomic { ends(R) -> phase[R] = DEAD; uses = 0 }
    :: timeout -> break
    od;
    /* nothing can happen any more */
    assert(up && is_over(P) && is_over(R));
    assert(!lease[P] && !lease[R] && !lease[X] && !pending[P] && !pending[R] && !pending[X]);
    assert(!publisher && (!set || kept && export == OPENABLE) && (set || export == NONE))
}
