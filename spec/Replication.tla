----------------------------- MODULE Replication -----------------------------
(***************************************************************************)
(* The replication of one partition: leader epochs (KIP-101, KIP-279,      *)
(* KIP-595), AlterPartition with a pending ISR (KIP-497), broker epochs    *)
(* (KIP-903), eligible leader replicas and the last known leader (KIP-966). *)
(*                                                                         *)
(* The controller's decisions are versions of the metadata, committed at   *)
(* once: KRaft.tla specifies the quorum that commits them.  Each broker    *)
(* learns them later, in order, and may skip some.                         *)
(*                                                                         *)
(* Time is abstract: a session may expire, and a follower outside of the   *)
(* leader's end may be late, at any moment.  A Fetch request stays in the  *)
(* network until its leader handles it.  Its response arrives at once or   *)
(* never: until it arrives, the follower does nothing that depends on it.  *)
(* Requests and responses of AlterPartition are separate steps.            *)
(***************************************************************************)
EXTENDS Integers, Sequences, FiniteSets, TLC

CONSTANTS
    Replica,        \* the brokers that have a replica
    First,          \* the leader of epoch 1
    None,           \* no broker
    MinIsr,         \* min.insync.replicas
    ElrEnabled,     \* whether KIP-966 is enabled
    MaxEpoch,       \* bounds of the explored world: leader epochs,
    MaxChanges,     \* partition epochs,
    MaxWrites,      \* records,
    MaxStops,       \* unclean stops,
    MaxLosses,      \* how many of them lose the end of a log,
    MaxCleanStops,  \* clean stops,
    MaxFences,      \* sessions that expire although the broker lives,
    MaxMoves,       \* leaders that are elected although the old one lives
    Lossy           \* whether responses to a Fetch may be lost

VARIABLES
    meta,       \* versions of the metadata, from the oldest that a broker still uses
    seen,       \* of each broker: the version that it has learned
    alive,
    clean,      \* whether the last stop of a broker was clean
    log,        \* disk: sequence of records
    cache,      \* disk: leader epochs and their start offsets
    hwm,        \* high watermark
    boss,       \* whom the broker believes to lead the partition
    lepoch,     \* the leader epoch that it is in
    pepoch,     \* the partition epoch that it knows
    isr,        \* of a leader: the committed ISR that it knows
    pending,    \* of a leader: the ISR that it has requested, or {}
    match,      \* of a leader: the last Fetch of each follower
    start,      \* of a leader: its end offset when its epoch began
    fetches,    \* Fetch requests on their way
    alters,     \* AlterPartition requests on their way
    answers,    \* responses to them
    committed,  \* history: the longest log below a high watermark
    unclean,    \* history: who stopped uncleanly since it was in the ISR
    guarantee,  \* history: "holds" until the last known leader is elected
    used        \* how much of the bounds is used

disk == <<log, cache>>
local == <<hwm, boss, lepoch, pepoch, isr, pending, match, start>>
network == <<fetches, alters, answers>>
history == <<committed, unclean, guarantee>>
vars == <<meta, seen, alive, clean, disk, local, network, history, used>>

Perms == {p \in Permutations(Replica) : p[First] = First}

Min(a, b) == IF a < b THEN a ELSE b
Max(a, b) == IF a > b THEN a ELSE b
Smallest(set) == CHOOSE n \in set : \A m \in set : n <= m
Prefix(l, n) == SubSeq(l, 1, n)
IsPrefix(a, b) == Len(a) <= Len(b) /\ Prefix(b, Len(a)) = a

Now == meta[Len(meta)]          \* what the controller knows
View(b) == meta[seen[b]]        \* what the broker knows
Leads(b) == alive[b] /\ boss[b] = b

Unknown == [end |-> -1, broker |-> 0]
NoProgress == [r \in Replica |-> Unknown]

-----------------------------------------------------------------------------
(* Leader epochs of a log.                                                  *)

LatestEpoch(b) == IF cache[b] = <<>> THEN -1 ELSE cache[b][Len(cache[b])].epoch

(* The greatest epoch not above this one, and where it ends.                *)
EpochEnd(b, epoch) ==
    LET above == {i \in DOMAIN cache[b] : cache[b][i].epoch > epoch}
        first == Smallest(above)
    IN  IF epoch = LatestEpoch(b) THEN [epoch |-> epoch, end |-> Len(log[b])]
        ELSE IF above = {} THEN [epoch |-> -1, end |-> -1]
        ELSE [epoch |-> IF first = 1 THEN epoch ELSE cache[b][first - 1].epoch, end |-> cache[b][first].start]

WithEpoch(c, epoch, offset) ==
    IF c # <<>> /\ c[Len(c)].epoch = epoch THEN c
    ELSE Append(SelectSeq(c, LAMBDA e : e.epoch < epoch /\ e.start < offset), [epoch |-> epoch, start |-> offset])

UpTo(c, offset) == SelectSeq(c, LAMBDA e : e.start < offset)

-----------------------------------------------------------------------------
(* The controller.                                                          *)

(* The versions that may follow version m if the ISR becomes `target` and  *)
(* `fenced` are the brokers that may not lead: PartitionChangeBuilder.     *)
(* `lost` leaves the ELR.  With `move`, another leader is elected.         *)
Changes(m, target, lost, fenced, epochs, move) ==
    LET elr == IF ~ElrEnabled \/ Cardinality(target) >= MinIsr THEN {}
               ELSE ((m.elr \cup m.isr) \ target) \ lost
        valid == {r \in Replica \ fenced : r \in target \/ (target = {} /\ r \in elr)}
        lastKnown == {r \in {m.lastKnown} \ fenced : ElrEnabled /\ target = {} /\ elr = {} /\ r # None}
        leaders == IF move THEN valid \ {m.leader}
                   ELSE IF m.leader \in valid THEN {m.leader}
                   ELSE IF valid # {} THEN valid
                   ELSE IF lastKnown # {} THEN lastKnown
                   ELSE {None}
        Next(l) ==
            LET uncleanly == l # None /\ l \notin valid
                newIsr == IF uncleanly \/ l \in elr THEN {l}
                          ELSE IF target = {} /\ ~ElrEnabled THEN m.isr
                          ELSE target
                new == [m EXCEPT
                    !.leader = l,
                    !.epoch = IF l = m.leader THEN @ ELSE @ + 1,
                    !.isr = newIsr,
                    !.elr = IF uncleanly THEN {} ELSE elr \ {l},
                    !.lastKnown = IF l # None \/ ~ElrEnabled THEN None ELSE IF @ = None THEN m.leader ELSE @]
            IN [new EXCEPT !.pepoch = IF new = m THEN @ ELSE @ + 1,
                           !.fenced = fenced, !.epochs = epochs]
    IN {Next(l) : l \in leaders}

InBounds(m) == m.epoch <= MaxEpoch /\ m.pepoch <= MaxChanges

(* Without the versions that every broker has passed.                       *)
Publish(versions, at, living) ==
    LET oldest == IF \E b \in Replica : living[b] THEN Smallest({at[b] : b \in {c \in Replica : living[c]}})
                  ELSE Len(versions)
    IN /\ meta' = SubSeq(versions, oldest, Len(versions))
       /\ seen' = [b \in Replica |-> IF living[b] THEN at[b] - oldest + 1 ELSE 1]

(* A request of an older partition epoch can only be refused: its sender    *)
(* waits for the metadata.                                                 *)
Current(requests, m) == {q \in requests : q.pepoch = m.pepoch}

Ending(old, new) ==
    IF new.leader # None /\ new.leader = old.lastKnown /\ new.leader \notin old.elr \cup old.isr
    THEN IF Cardinality(unclean) < MinIsr THEN "broken" ELSE "ended"
    ELSE guarantee

(* The session of a broker expires.                                         *)
Fence(b) ==
    /\ b \notin Now.fenced
    /\ alive[b] => used.fences < MaxFences
    /\ \E m \in Changes(Now, Now.isr \ {b}, {}, Now.fenced \cup {b}, Now.epochs, FALSE) :
        /\ InBounds(m)
        /\ Publish(Append(meta, m), seen, alive)
        /\ alters' = Current(alters, m)
        /\ guarantee' = Ending(Now, m)
    /\ used' = [used EXCEPT !.fences = IF alive[b] THEN @ + 1 ELSE @]
    /\ UNCHANGED <<alive, clean, disk, local, fetches, answers, committed, unclean>>

(* A broker that lives has learned at least its registration.               *)
Unfence(b) ==
    /\ alive[b] /\ b \in Now.fenced
    /\ \E m \in LET counted == [Now EXCEPT !.unfenced[b] = @ + 1] IN
                IF Now.leader = None
                THEN Changes(counted, Now.isr, {}, Now.fenced \ {b}, Now.epochs, FALSE)
                ELSE {[counted EXCEPT !.fenced = @ \ {b}]} :
        /\ InBounds(m)
        /\ Publish(Append(meta, m), seen, alive)
        /\ alters' = Current(alters, m)
        /\ guarantee' = Ending(Now, m)
    /\ UNCHANGED <<alive, clean, disk, local, fetches, answers, committed, unclean, used>>

(* A preferred leader is elected, or the leader begins a controlled         *)
(* shutdown.                                                               *)
Move ==
    /\ used.moves < MaxMoves /\ Now.leader # None
    /\ \E m \in Changes(Now, Now.isr, {}, Now.fenced, Now.epochs, TRUE) :
        /\ InBounds(m)
        /\ Publish(Append(meta, m), seen, alive)
        /\ alters' = Current(alters, m)
    /\ used' = [used EXCEPT !.moves = @ + 1]
    /\ UNCHANGED <<alive, clean, disk, local, fetches, answers, history>>

(* KIP-903: a member may have restarted since the leader knew it in sync.   *)
SameIncarnation(q, r) == q.epochs[r] \in {0, Now.epochs[r]}

(* A new member may have been fenced since the leader chose it: the request *)
(* has the metadata offset of the leader, here a count.  If a copy of the   *)
(* request was refused, the high watermark no longer waits for the member.  *)
ChosenSinceUnfenced(q) == \A r \in q.isr \ Now.isr : q.unfenced[r] = Now.unfenced[r]

(* A request that has been handled does not arrive again.                   *)
Handled(q) == {q}

HandleAlter(q) ==
    /\ q \in alters
    /\ q.by = Now.leader /\ q.epoch = Now.epoch /\ q.broker = Now.epochs[q.by]
    /\ IF (\A r \in q.isr : r \notin Now.fenced /\ SameIncarnation(q, r)) /\ ChosenSinceUnfenced(q)
       THEN \E m \in Changes(Now, q.isr, {}, Now.fenced, Now.epochs, FALSE) :
              /\ InBounds(m)
              /\ Publish(Append(meta, m), seen, alive)
              /\ alters' = Current(alters \ Handled(q), m)
              /\ answers' = answers \cup {[to |-> q.by, request |-> q, granted |-> TRUE, pepoch |-> m.pepoch, isr |-> m.isr]}
              /\ unclean' = unclean \ (q.isr \ Now.isr)
       ELSE /\ alters' = alters \ Handled(q)
            /\ answers' = answers \cup {[to |-> q.by, request |-> q, granted |-> FALSE, pepoch |-> 0, isr |-> {}]}
            /\ UNCHANGED <<meta, seen, unclean>>
    /\ UNCHANGED <<alive, clean, disk, local, fetches, committed, guarantee, used>>

-----------------------------------------------------------------------------
(* Brokers.                                                                 *)

(* What an unclean stop leaves of a log.                                    *)
Left(b) == IF used.losses < MaxLosses THEN 0 .. Len(log[b]) ELSE {Len(log[b])}

Halt(b) ==
    /\ alive' = [alive EXCEPT ![b] = FALSE]
    /\ boss' = [boss EXCEPT ![b] = None]
    /\ hwm' = [hwm EXCEPT ![b] = 0]
    /\ lepoch' = [lepoch EXCEPT ![b] = 0]
    /\ pepoch' = [pepoch EXCEPT ![b] = 0]
    /\ isr' = [isr EXCEPT ![b] = {}]
    /\ pending' = [pending EXCEPT ![b] = {}]
    /\ match' = [match EXCEPT ![b] = NoProgress]
    /\ start' = [start EXCEPT ![b] = 0]
    /\ fetches' = {q \in fetches : q.to # b}
    /\ answers' = {a \in answers : a.to # b}
    /\ Publish(meta, seen, alive')

(* A kill or a power failure.                                               *)
Crash(b) ==
    /\ alive[b] /\ used.stops < MaxStops
    /\ \E n \in Left(b) :
        /\ log' = [log EXCEPT ![b] = Prefix(@, n)]
        /\ cache' = [cache EXCEPT ![b] = UpTo(@, n)]
        /\ used' = [used EXCEPT !.stops = @ + 1, !.losses = IF n < Len(log[b]) THEN @ + 1 ELSE @]
    /\ Halt(b)
    /\ clean' = [clean EXCEPT ![b] = FALSE]
    /\ unclean' = IF b \in Now.isr \cup Now.elr THEN unclean \cup {b} ELSE unclean
    /\ UNCHANGED <<alters, committed, guarantee>>

CleanStop(b) ==
    /\ alive[b] /\ used.cleanStops < MaxCleanStops
    /\ used' = [used EXCEPT !.cleanStops = @ + 1]
    /\ Halt(b)
    /\ clean' = [clean EXCEPT ![b] = TRUE]
    /\ cache' = [cache EXCEPT ![b] = UpTo(@, Len(log[b]))]
    /\ UNCHANGED <<log, alters, history>>

(* A broker that may have lost records is no longer eligible.               *)
LeavesElr(b) == IF clean[b] THEN {} ELSE {b}

(* A process starts, registers, and learns the metadata up to there.        *)
Restart(b) ==
    /\ ~alive[b]
    /\ \E m \in Changes(Now, Now.isr \ {b}, LeavesElr(b), Now.fenced \cup {b}, [Now.epochs EXCEPT ![b] = @ + 1], FALSE) :
        /\ InBounds(m)
        /\ Publish(Append(meta, m), [seen EXCEPT ![b] = Len(meta) + 1], [alive EXCEPT ![b] = TRUE])
        /\ alters' = Current(alters, m)
        /\ guarantee' = Ending(Now, m)
        /\ boss' = [boss EXCEPT ![b] = m.leader]
        /\ lepoch' = [lepoch EXCEPT ![b] = m.epoch]
        /\ pepoch' = [pepoch EXCEPT ![b] = m.pepoch]
    /\ alive' = [alive EXCEPT ![b] = TRUE]
    /\ UNCHANGED <<clean, disk, hwm, isr, pending, match, start, fetches, answers, committed, unclean, used>>

(* Whether version m says anything about the partition that the broker does *)
(* not know.  Its own AlterPartition may have told it before.              *)
IsNews(b, m) == m.pepoch > pepoch[b]

(* What a leader still knows of its followers after it has learned version  *)
(* m.  After a gap in the leader epochs they may have truncated their logs. *)
Known(b, m) == IF boss[b] = b /\ m.epoch <= lepoch[b] + 1 THEN match[b] ELSE NoProgress

(* The log of a new follower, before it fetches.                            *)
LogOfNewFollower(b) == log[b]

(* The requests that a leader of epoch `epoch` no longer counts.            *)
Refused(b, epoch) == {q \in fetches : q.to = b /\ q.epoch < epoch}
(* The responses that a leader ignores once its pending ISR is gone.        *)
Ignored(b) == {a \in answers : a.to = b}

Learn(b) ==
    /\ alive[b]
    /\ \E v \in seen[b] + 1 .. Len(meta) :
        LET m == meta[v]
            newEpoch == m.epoch > lepoch[b]
        IN
        /\ Publish(meta, [seen EXCEPT ![b] = v], alive)
        /\ IF ~IsNews(b, m)
           THEN UNCHANGED <<disk, local, fetches, answers>>
           ELSE /\ boss' = [boss EXCEPT ![b] = m.leader]
                /\ lepoch' = [lepoch EXCEPT ![b] = m.epoch]
                /\ pepoch' = [pepoch EXCEPT ![b] = m.pepoch]
                /\ isr' = [isr EXCEPT ![b] = IF m.leader = b THEN m.isr ELSE {}]
                /\ pending' = [pending EXCEPT ![b] = {}]
                /\ match' = [match EXCEPT ![b] = IF m.leader = b THEN Known(b, m) ELSE NoProgress]
                /\ start' = [start EXCEPT ![b] = IF m.leader # b THEN 0 ELSE IF newEpoch THEN Len(log[b]) ELSE @]
                /\ log' = [log EXCEPT ![b] = IF m.leader \notin {b, None} /\ newEpoch THEN LogOfNewFollower(b) ELSE @]
                /\ cache' = [cache EXCEPT ![b] = IF m.leader = b /\ newEpoch THEN WithEpoch(@, m.epoch, Len(log[b]))
                                                 ELSE IF log'[b] # log[b] THEN UpTo(@, Len(log'[b])) ELSE @]
                /\ hwm' = [hwm EXCEPT ![b] = Min(@, Len(log'[b]))]
                /\ fetches' = fetches \ Refused(b, m.epoch)
                /\ answers' = answers \ Ignored(b)
    /\ UNCHANGED <<alive, clean, alters, history, used>>

(* With any acks: acks=all also needs the ISR to be large enough.           *)
Write(b) ==
    /\ Leads(b) /\ used.writes < MaxWrites
    /\ log' = [log EXCEPT ![b] = Append(@, [epoch |-> lepoch[b], id |-> used.writes + 1])]
    /\ used' = [used EXCEPT !.writes = @ + 1]
    /\ UNCHANGED <<meta, seen, alive, clean, cache, local, network, history>>

(* -- Fetch                                                                 *)

(* A Fetch that would change nothing is not worth a state.                  *)
IsUseful(q) ==
    /\ Leads(q.to) /\ lepoch[q.to] = q.epoch
    /\ \/ match[q.to][q.from] # [end |-> q.offset, broker |-> q.broker]
       \/ q.offset # Len(log[q.to])
       \/ hwm[q.from] < Min(hwm[q.to], q.offset)

SendFetch(b) ==
    LET q == [from |-> b, to |-> boss[b], broker |-> Now.epochs[b], epoch |-> lepoch[b],
              offset |-> Len(log[b]), last |-> LatestEpoch(b)]
        others == {r \in fetches : r.from = b /\ r.to = boss[b]}
    IN
    /\ alive[b] /\ boss[b] \notin {b, None} /\ IsUseful(q)
    /\ \A r \in others : r.broker # q.broker \/ r.epoch # q.epoch
    /\ fetches' = (fetches \ others) \cup {q}
    /\ UNCHANGED <<meta, seen, alive, clean, disk, local, alters, answers, history, used>>

(* Whether a leader handles a Fetch of this leader epoch.                   *)
RightEpoch(q) == lepoch[q.to] = q.epoch

(* A Fetch of an older incarnation is refused, if the leader knows.         *)
RightBroker(q) == q.from \in View(q.to).fenced \/ View(q.to).epochs[q.from] <= q.broker

(* Whether the follower still waits for the response.                       *)
Waits(q) == /\ alive[q.from] /\ boss[q.from] = q.to /\ lepoch[q.from] = q.epoch
            /\ Now.epochs[q.from] = q.broker

Diverges(q) ==
    LET known == EpochEnd(q.to, q.last) IN
    q.last >= 0 /\ (known.epoch < q.last \/ known.end < q.offset)

(* Where a follower cuts its log when the leader's epoch ends there.        *)
Cut(b, known) ==
    LET own == EpochEnd(b, known.epoch) IN
    IF own.end < 0 THEN Min(known.end, Len(log[b]))
    ELSE IF own.epoch # known.epoch THEN Min(own.end, Len(log[b]))
    ELSE Min(Min(own.end, known.end), Len(log[b]))

Truncate(q) ==
    LET f == q.from
        n == Cut(f, EpochEnd(q.to, q.last))
    IN
    /\ log' = [log EXCEPT ![f] = Prefix(@, n)]
    /\ cache' = [cache EXCEPT ![f] = UpTo(@, n)]
    /\ hwm' = [hwm EXCEPT ![f] = Min(@, n)]

Copy(q) ==
    LET f == q.from
        l == q.to
        more == q.offset < Len(log[l])
    IN
    /\ log' = [log EXCEPT ![f] = IF more THEN Append(@, log[l][q.offset + 1]) ELSE @]
    /\ cache' = [cache EXCEPT ![f] = IF more THEN WithEpoch(@, log[l][q.offset + 1].epoch, q.offset) ELSE @]
    /\ hwm' = [hwm EXCEPT ![f] = Max(@, Min(hwm[l], Len(log'[f])))]

HandleFetch(q) ==
    LET f == q.from
        l == q.to
    IN
    /\ q \in fetches /\ Leads(l) /\ RightEpoch(q)
    /\ fetches' = fetches \ {q}
    /\ match' = IF RightBroker(q) /\ ~Diverges(q) /\ q.offset <= Len(log[l])
                THEN [match EXCEPT ![l][f] = [end |-> q.offset, broker |-> q.broker]] ELSE match
    /\ \/ /\ Waits(q) /\ RightBroker(q)
          /\ IF Diverges(q) THEN Truncate(q) ELSE Copy(q)
       \/ /\ Lossy \/ ~(Waits(q) /\ RightBroker(q))
          /\ UNCHANGED <<disk, hwm>>
    /\ UNCHANGED <<meta, seen, alive, clean, boss, lepoch, pepoch, isr, pending, start, alters, answers, history, used>>

(* -- The high watermark                                                    *)

(* A pending expansion counts, because the controller may have committed it. *)
MaximalIsr(b) == IF isr[b] \subseteq pending[b] THEN pending[b] ELSE isr[b]

EnoughInSync(b) == Cardinality(isr[b]) >= MinIsr

(* The least end offset of those that it waits for.                         *)
Reached(b) == Smallest({IF r = b THEN Len(log[b]) ELSE match[b][r].end : r \in MaximalIsr(b) \cup {b}})

Advance(b) ==
    /\ Leads(b) /\ EnoughInSync(b) /\ Reached(b) > hwm[b]
    /\ hwm' = [hwm EXCEPT ![b] = Reached(b)]
    /\ committed' = IF Reached(b) > Len(committed) THEN Prefix(log[b], Reached(b)) ELSE committed
    /\ UNCHANGED <<meta, seen, alive, clean, disk, boss, lepoch, pepoch, isr, pending, match, start,
                   network, unclean, guarantee, used>>

(* -- AlterPartition                                                        *)

Request(b, wanted) ==
    /\ alters' = Current(alters \cup
         {[by |-> b, broker |-> Now.epochs[b], epoch |-> lepoch[b], pepoch |-> pepoch[b], isr |-> wanted,
           epochs |-> [r \in Replica |-> IF r = b THEN Now.epochs[b] ELSE IF r \in wanted THEN match[b][r].broker ELSE 0],
           unfenced |-> [r \in Replica |-> IF r \in wanted \ isr[b] THEN View(b).unfenced[r] ELSE 0]]},
         Now)
    /\ pending' = [pending EXCEPT ![b] = wanted]

Eligible(b, r) == r \notin View(b).fenced /\ match[b][r].broker = View(b).epochs[r]

Expand(b, r) ==
    /\ Leads(b) /\ pending[b] = {} /\ r \notin isr[b]
    /\ Eligible(b, r) /\ match[b][r].end >= hwm[b] /\ match[b][r].end >= start[b]
    /\ Request(b, isr[b] \cup {r})
    /\ UNCHANGED <<meta, seen, alive, clean, disk, hwm, boss, lepoch, pepoch, isr, match, start,
                   fetches, answers, history, used>>

(* The ISR that the leader uses until the controller has answered.          *)
IsrOnShrink(b, kept) == isr[b]

Shrink(b) ==
    LET late == {r \in isr[b] \ {b} : match[b][r].end < Len(log[b])} IN
    /\ Leads(b) /\ pending[b] = {}
    /\ \E gone \in SUBSET late :
        /\ gone # {}
        /\ Request(b, isr[b] \ gone)
        /\ isr' = [isr EXCEPT ![b] = IsrOnShrink(b, isr[b] \ gone)]
    /\ UNCHANGED <<meta, seen, alive, clean, disk, hwm, boss, lepoch, pepoch, match, start,
                   fetches, answers, history, used>>

(* Whether a response still belongs to the pending ISR of its leader.       *)
Belongs(a) ==
    LET b == a.to IN
    /\ pending[b] = a.request.isr /\ lepoch[b] = a.request.epoch /\ pepoch[b] = a.request.pepoch

HandleAnswer(a) ==
    LET b == a.to IN
    /\ a \in answers
    /\ answers' = answers \ {a}
    /\ IF Leads(b) /\ Belongs(a)
       THEN /\ pending' = [pending EXCEPT ![b] = {}]
            /\ isr' = [isr EXCEPT ![b] = IF a.granted THEN a.isr ELSE @]
            /\ pepoch' = [pepoch EXCEPT ![b] = IF a.granted THEN a.pepoch ELSE @]
       ELSE UNCHANGED <<pending, isr, pepoch>>
    /\ UNCHANGED <<meta, seen, alive, clean, disk, hwm, boss, lepoch, match, start, fetches, alters, history, used>>

-----------------------------------------------------------------------------
Init ==
    /\ meta = <<[leader |-> First, epoch |-> 1, pepoch |-> 1, isr |-> Replica, elr |-> {}, lastKnown |-> None,
                 epochs |-> [r \in Replica |-> 1], fenced |-> {}, unfenced |-> [r \in Replica |-> 0]]>>
    /\ seen = [r \in Replica |-> 1]
    /\ alive = [r \in Replica |-> TRUE]
    /\ clean = [r \in Replica |-> TRUE]
    /\ log = [r \in Replica |-> <<>>]
    /\ cache = [r \in Replica |-> IF r = First THEN <<[epoch |-> 1, start |-> 0]>> ELSE <<>>]
    /\ hwm = [r \in Replica |-> 0]
    /\ boss = [r \in Replica |-> First]
    /\ lepoch = [r \in Replica |-> 1]
    /\ pepoch = [r \in Replica |-> 1]
    /\ isr = [r \in Replica |-> IF r = First THEN Replica ELSE {}]
    /\ pending = [r \in Replica |-> {}]
    /\ match = [r \in Replica |-> NoProgress]
    /\ start = [r \in Replica |-> 0]
    /\ fetches = {} /\ alters = {} /\ answers = {}
    /\ committed = <<>> /\ unclean = {} /\ guarantee = "holds"
    /\ used = [writes |-> 0, stops |-> 0, losses |-> 0, cleanStops |-> 0, fences |-> 0, moves |-> 0]

Next ==
    \/ Move
    \/ \E b \in Replica : \/ Fence(b) \/ Unfence(b) \/ Crash(b) \/ CleanStop(b) \/ Restart(b)
                          \/ Learn(b) \/ Write(b) \/ SendFetch(b) \/ Advance(b) \/ Shrink(b)
    \/ \E b, r \in Replica : Expand(b, r)
    \/ \E q \in fetches : HandleFetch(q)
    \/ \E q \in alters : HandleAlter(q)
    \/ \E a \in answers : HandleAnswer(a)

Spec == Init /\ [][Next]_vars

(* After the election of a last known leader nothing is promised.           *)
Guaranteed == guarantee = "holds"

-----------------------------------------------------------------------------
(* Safety                                                                   *)

TypeOK ==
    /\ \A b \in Replica : hwm[b] <= Len(log[b]) /\ seen[b] \in DOMAIN meta
    /\ \A b \in Replica : pending[b] # {} => Leads(b)

(* A replica that has stopped uncleanly and has not registered since.       *)
Doubtful(b) == ~alive[b] /\ ~clean[b]

(* Nobody believes anything else to be committed.                           *)
CommittedStays == \A b \in Replica : IsPrefix(Prefix(log[b], hwm[b]), committed)

(* Whoever may be elected has everything that is committed, in order.       *)
CommittedIsHeld == \A r \in Now.isr \cup Now.elr : Doubtful(r) \/ IsPrefix(committed, log[r])

(* With fewer unclean stops than min.insync.replicas somebody has it.       *)
NothingIsLost ==
    ElrEnabled /\ committed # <<>> /\ Cardinality(unclean) < MinIsr
    => \E r \in Now.isr \cup Now.elr : ~Doubtful(r)

(* ... and then the last known leader is not needed.                        *)
LastKnownIsLast == guarantee # "broken"

(* PartitionChangeBuilder keeps these.                                      *)
MetadataIsValid ==
    /\ Now.isr \cap Now.elr = {}
    /\ Now.leader # None => Now.leader \in Now.isr /\ Now.leader \notin Now.fenced /\ Now.lastKnown = None
    /\ Cardinality(Now.isr) >= MinIsr => Now.elr = {}
    /\ Now.leader = None => Now.isr \ Now.fenced = {} /\ (Now.isr = {} => Now.elr \ Now.fenced = {})
    /\ ~ElrEnabled => Now.isr # {} /\ Now.elr = {} /\ Now.lastKnown = None

OneLeaderAnEpoch == \A a, b \in Replica : Leads(a) /\ Leads(b) /\ lepoch[a] = lepoch[b] => a = b

(* The ISR that a leader waits for includes the controller's, as long as    *)
(* the leader is the current one.                                          *)
WaitsForIsr == \A b \in Replica : Leads(b) /\ lepoch[b] = Now.epoch => Now.isr \subseteq MaximalIsr(b)

(* Each fetched epoch is known to the leader.                               *)
FetchedEpochIsKnown ==
    \A q \in fetches : Leads(q.to) /\ lepoch[q.to] = q.epoch /\ q.last >= 0 => EpochEnd(q.to, q.last).end >= 0

(* What a client has seen of a leader is there as long as it leads.         *)
HighWatermarkStays ==
    [][\A b \in Replica : Leads(b) /\ boss'[b] = b /\ lepoch'[b] = lepoch[b] => hwm'[b] >= hwm[b]]_vars

CommittedGrows == [][IsPrefix(committed, committed')]_vars
=============================================================================
