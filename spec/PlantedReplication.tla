-------------------------- MODULE PlantedReplication --------------------------
(***************************************************************************)
(* Rules of Replication.tla that are wrong on purpose: TLC has to find out. *)
(* A configuration puts one of them in the place of the right one.         *)
(***************************************************************************)
EXTENDS Replication

Always(x) == TRUE
Nothing(x) == {}

(* For Reached: any replicas count, also those outside of the ISR.          *)
ReachedByAny(b) ==
    LET end(r) == IF r = b THEN Len(log[b]) ELSE match[b][r].end
        enough == {n \in -1 .. Len(log[b]) : Cardinality({r \in Replica : end(r) >= n}) >= MinIsr}
    IN CHOOSE n \in enough : \A m \in enough : m <= n

(* For LogOfNewFollower: truncation to the high watermark, before KIP-101.  *)
CutToHighWatermark(b) == Prefix(log[b], hwm[b])

(* For IsrOnShrink: the smaller ISR counts before the controller commits it. *)
AtOnce(b, kept) == kept

(* For MaximalIsr: a pending expansion does not count.                      *)
CommittedIsr(b) == isr[b]

(* For RightEpoch, with RefusesNothing for Refused: an older leader epoch counts.  *)
RefusesNothing(b, epoch) == {}
AnyOlderEpoch(q) == lepoch[q.to] >= q.epoch

(* For Known: a leader that has skipped an epoch keeps what it knew.        *)
KnownBefore(b, m) == IF boss[b] = b THEN match[b] ELSE NoProgress

(* For IsNews: a version that the answer to an AlterPartition has told      *)
(* before ends the pending ISR, which is of a later request.               *)
IsNewsAgain(b, m) == m.pepoch >= pepoch[b] /\ m.pepoch # View(b).pepoch

(* For Handled: a request that was sent twice may be handled again.         *)
Duplicated(q) == {}

(* For Belongs, if requests are handled twice: a response belongs to one    *)
(* request, and no response to an older request of the same ISR counts.     *)
AnswersNewest(a) ==
    LET b == a.to
        sent == {q \in alters : q.by = b} \cup {x.request : x \in {y \in answers : y.to = b}}
    IN
    /\ pending[b] = a.request.isr /\ lepoch[b] = a.request.epoch /\ pepoch[b] = a.request.pepoch
    /\ \A q \in sent, r \in Replica : q.unfenced[r] <= a.request.unfenced[r]

(* For Shrink, in worlds that need no smaller ISR: nobody is late.          *)
NobodyIsLate(b) == FALSE

(* The same world later: all have the first record, it is committed, and    *)
(* one follower has left the ISR and has caught up.  A run from here is     *)
(* shorter.                                                                *)
InitApart ==
    LET record == [epoch |-> 1, id |-> 1] IN
    \E apart \in Replica \ {First} :
        /\ meta = <<[leader |-> First, epoch |-> 1, pepoch |-> 1, isr |-> Replica \ {apart}, elr |-> {},
                     lastKnown |-> None, epochs |-> [r \in Replica |-> 1], fenced |-> {},
                     unfenced |-> [r \in Replica |-> 0]]>>
        /\ seen = [r \in Replica |-> 1]
        /\ alive = [r \in Replica |-> TRUE]
        /\ clean = [r \in Replica |-> TRUE]
        /\ log = [r \in Replica |-> <<record>>]
        /\ cache = [r \in Replica |-> <<[epoch |-> 1, start |-> 0]>>]
        /\ hwm = [r \in Replica |-> 1]
        /\ boss = [r \in Replica |-> First]
        /\ lepoch = [r \in Replica |-> 1]
        /\ pepoch = [r \in Replica |-> 1]
        /\ isr = [r \in Replica |-> IF r = First THEN Replica \ {apart} ELSE {}]
        /\ pending = [r \in Replica |-> {}]
        /\ match = [r \in Replica |-> IF r # First THEN NoProgress
                      ELSE [f \in Replica |-> IF f = First THEN Unknown ELSE [end |-> 1, broker |-> 1]]]
        /\ start = [r \in Replica |-> 0]
        /\ fetches = {} /\ alters = {} /\ answers = {}
        /\ committed = <<record>> /\ unclean = {} /\ guarantee = "holds"
        /\ used = [writes |-> 1, stops |-> 0, losses |-> 0, cleanStops |-> 0, fences |-> 0, moves |-> 0]

SpecApart == InitApart /\ [][Next]_vars

(* For SameIncarnation: broker epochs are not compared.                     *)
AnyIncarnation(q, r) == TRUE
===============================================================================
