------------------------------- MODULE KRaft -------------------------------
(***************************************************************************)
(* The quorum that keeps the metadata log: pull-based Raft (KIP-595) with  *)
(* pre-vote (KIP-996) and changes of the voter set by one (KIP-853).       *)
(*                                                                         *)
(* What is kept: epochs, persisted votes, roles, logs entry by entry,      *)
(* truncation on divergence, the high watermark and its rule for a leader  *)
(* outside of the voter set, voter sets that act as soon as appended and   *)
(* are undone by truncation, crashes that lose everything but epoch, vote  *)
(* and log.  What is abstract: time (a timer may fire at any moment),      *)
(* snapshots (a log never starts beyond its first entry), and endpoints.   *)
(*                                                                         *)
(* Vote requests and votes stay in the network for ever, so every delay,   *)
(* duplication and reordering of them is covered, and losing one is never  *)
(* acting on it.  A fetch is one step, of a follower with the server that  *)
(* it believes to lead its epoch.                                          *)
(***************************************************************************)
EXTENDS Naturals, Sequences, FiniteSets, TLC

CONSTANTS
    Server,         \* replicas that exist
    InitialVoters,  \* the first voter set
    None,           \* no server
    MaxEpoch,       \* bounds of the explored world ...
    MaxLog,
    MaxWrites,      \* by one leader; its first entry and voter sets not counted
    MaxCrashes,
    MaxReconfigs

VARIABLES
    epoch,      \* persisted
    voted,      \* persisted: for whom in this epoch
    log,        \* persisted: sequence of entries
    role,
    leader,     \* whom the server believes to lead its epoch
    heard,      \* whether it has fetched from that leader since it follows it
    granted,    \* who granted the present pre-vote
    hwm,        \* high watermark: how many entries it knows to be committed
    match,      \* of a leader: how far each server had fetched
    requests,   \* vote requests ever sent
    votes,      \* votes ever given
    elected,    \* history: (epoch, server) of each election won
    committed,  \* history: the longest committed sequence
    crashes, reconfigs, calm

vars == <<epoch, voted, log, role, leader, heard, granted, hwm, match,
          requests, votes, elected, committed, crashes, reconfigs, calm>>

Perms == Permutations(Server)

(* For worlds in which some server is no voter at first.                    *)
VoterPerms == {p \in Perms : {p[s] : s \in InitialVoters} = InitialVoters}

Roles == {"unattached", "follower", "prospective", "candidate", "leader", "resigned"}

(* An entry is of an epoch and, where it changes the voters, holds the new  *)
(* set; every other entry holds the empty set.                             *)
Entry(e, set) == [epoch |-> e, voters |-> set]

LastEpoch(l) == IF l = <<>> THEN 0 ELSE l[Len(l)].epoch

VoterEntries(l) == {i \in DOMAIN l : l[i].voters # {}}
Last(set) == CHOOSE i \in set : \A j \in set : j <= i

(* Appended is enough: a set acts before it is committed.                  *)
Voters(s) == IF VoterEntries(log[s]) = {} THEN InitialVoters
             ELSE log[s][Last(VoterEntries(log[s]))].voters

IsMajority(some, all) == Cardinality(some \cap all) * 2 > Cardinality(all)

UpToDate(le, len, s) == \/ le > LastEpoch(log[s])
                        \/ le = LastEpoch(log[s]) /\ len >= Len(log[s])

Min(a, b) == IF a < b THEN a ELSE b

-----------------------------------------------------------------------------
Init ==
    /\ epoch = [s \in Server |-> 0]
    /\ voted = [s \in Server |-> None]
    /\ log = [s \in Server |-> <<>>]
    /\ role = [s \in Server |-> "unattached"]
    /\ leader = [s \in Server |-> None]
    /\ heard = [s \in Server |-> FALSE]
    /\ granted = [s \in Server |-> {}]
    /\ hwm = [s \in Server |-> 0]
    /\ match = [s \in Server |-> [t \in Server |-> 0]]
    /\ requests = {} /\ votes = {} /\ elected = {} /\ committed = <<>>
    /\ crashes = 0 /\ reconfigs = 0 /\ calm = FALSE

(* The same world later: epoch 1 has its leader, and all voters hold its    *)
(* first entry and know that it is committed.  What comes before is        *)
(* explored from Init; a run from here reaches deeper.                     *)
InitStanding ==
    \E l \in InitialVoters :
        LET of(s, voter, other) == IF s \in InitialVoters THEN voter ELSE other IN
        /\ epoch = [s \in Server |-> of(s, 1, 0)]
        /\ voted = [s \in Server |-> of(s, l, None)]
        /\ log = [s \in Server |-> of(s, <<Entry(1, {})>>, <<>>)]
        /\ role = [s \in Server |-> IF s = l THEN "leader" ELSE of(s, "follower", "unattached")]
        /\ leader = [s \in Server |-> of(s, l, None)]
        /\ heard = [s \in Server |-> s \in InitialVoters \ {l}]
        /\ granted = [s \in Server |-> {}]
        /\ hwm = [s \in Server |-> of(s, 1, 0)]
        /\ match = [s \in Server |-> [t \in Server |-> IF s = l /\ t # l THEN of(t, 1, 0) ELSE 0]]
        /\ requests = {[epoch |-> 1, from |-> l, last |-> 0, len |-> 0]}
        /\ votes = {[epoch |-> 1, by |-> s, for |-> l] : s \in InitialVoters}
        /\ elected = {[epoch |-> 1, who |-> l]}
        /\ committed = <<Entry(1, {})>>
        /\ crashes = 0 /\ reconfigs = 0 /\ calm = FALSE

(* A leader whom everybody can still learn of.                              *)
Current(l) == role[l] = "leader" /\ \A t \in Server : epoch[t] <= epoch[l]

(* Voters, and a server whose removal stands in its log and is not known to *)
(* be committed: where the others lack that entry, nobody else could win.  *)
(* It counts for no majority of its own set.                               *)
MayStand(s) ==
    \/ s \in Voters(s)
    \/ /\ VoterEntries(log[s]) # {}
       /\ LET i == Last(VoterEntries(log[s]))
              before == {j \in VoterEntries(log[s]) : j < i}
          IN /\ i > hwm[s]
             /\ s \in (IF before = {} THEN InitialVoters ELSE log[s][Last(before)].voters)

(* The fetch or election timer of a voter fires.  In the calm that the      *)
(* liveness property assumes, it is longer than it takes to hear from a    *)
(* leader that there is, and it fires while nobody else stands: what       *)
(* random timers bring about in the end.                                   *)
TimerFires(s) ==
    /\ role[s] \in {"unattached", "follower"}
    /\ MayStand(s)
    /\ calm => \A t \in Server : ~Current(t) /\ role[t] \notin {"prospective", "candidate"}
    /\ role' = [role EXCEPT ![s] = "prospective"]
    /\ heard' = [heard EXCEPT ![s] = FALSE]
    /\ granted' = [granted EXCEPT ![s] = {s}]
    /\ UNCHANGED <<epoch, voted, log, leader, hwm, match, requests, votes,
                   elected, committed, crashes, reconfigs, calm>>

(* What only a candidate or a leader needs is forgotten with the role.      *)
Forget(s) ==
    /\ granted' = [granted EXCEPT ![s] = {}]
    /\ match' = [match EXCEPT ![s] = [t \in Server |-> 0]]

(* A server meets a higher epoch and knows no leader of it.                *)
Adopt(s, e) ==
    /\ epoch' = [epoch EXCEPT ![s] = e]
    /\ voted' = [voted EXCEPT ![s] = None]
    /\ role' = [role EXCEPT ![s] = "unattached"]
    /\ leader' = [leader EXCEPT ![s] = None]
    /\ heard' = [heard EXCEPT ![s] = FALSE]

GrantsPreVote(t, s) ==
    /\ UpToDate(LastEpoch(log[s]), Len(log[s]), t)
    /\ IF epoch[t] < epoch[s] THEN TRUE
       ELSE role[t] # "leader" /\ ~heard[t]

(* Request and answer in one step: neither side persists anything.         *)
PreVote(s, t) ==
    /\ role[s] = "prospective" /\ t # s /\ t \in Voters(s) /\ t \notin granted[s]
    /\ IF epoch[t] > epoch[s]
       THEN Adopt(s, epoch[t]) /\ Forget(s)
       ELSE /\ GrantsPreVote(t, s)
            /\ IF epoch[t] < epoch[s]
               THEN /\ Adopt(t, epoch[s])
                    /\ granted' = [granted EXCEPT ![s] = @ \cup {t}, ![t] = {}]
                    /\ match' = [match EXCEPT ![t] = [u \in Server |-> 0]]
               ELSE /\ granted' = [granted EXCEPT ![s] = @ \cup {t}]
                    /\ UNCHANGED <<epoch, voted, role, leader, heard, match>>
    /\ UNCHANGED <<log, hwm, requests, votes, elected, committed,
                   crashes, reconfigs, calm>>

(* Refused, or out of time: back to where it came from, same epoch.        *)
GiveUp(s) ==
    /\ role[s] \in {"prospective", "candidate"}
    /\ calm /\ role[s] = "prospective" =>
         ~IsMajority({t \in Server : t = s \/ (epoch[t] <= epoch[s] /\ GrantsPreVote(t, s))}, Voters(s))
    /\ calm => role[s] = "prospective"
    /\ role' = [role EXCEPT ![s] = IF role[s] = "prospective" /\ leader[s] # None
                                   THEN "follower" ELSE "unattached"]
    /\ Forget(s)
    /\ UNCHANGED <<epoch, voted, log, leader, heard, hwm,
                   requests, votes, elected, committed, crashes, reconfigs, calm>>

PreVoteWon(s) == IsMajority(granted[s], Voters(s))

Stand(s) ==
    /\ role[s] = "prospective"
    /\ PreVoteWon(s)
    /\ epoch[s] < MaxEpoch
    /\ epoch' = [epoch EXCEPT ![s] = @ + 1]
    /\ voted' = [voted EXCEPT ![s] = s]
    /\ role' = [role EXCEPT ![s] = "candidate"]
    /\ leader' = [leader EXCEPT ![s] = None]
    /\ requests' = requests \cup
         {[epoch |-> epoch[s] + 1, from |-> s, last |-> LastEpoch(log[s]), len |-> Len(log[s])]}
    /\ votes' = votes \cup {[epoch |-> epoch[s] + 1, by |-> s, for |-> s]}
    /\ Forget(s)
    /\ UNCHANGED <<log, heard, hwm, elected, committed,
                   crashes, reconfigs, calm>>

(* The voter need not be in the candidate's set, nor the reverse: what a    *)
(* replica knows of the voters may be old.                                 *)
Vote(t, r) ==
    /\ r.from # t /\ r.epoch >= epoch[t]
    /\ ~\E v \in votes : v.epoch = r.epoch /\ v.by = t
    /\ \/ r.epoch > epoch[t]
       \/ role[t] \in {"unattached", "prospective"} /\ leader[t] = None /\ voted[t] \in {None, r.from}
    /\ IF UpToDate(r.last, r.len, t)
       THEN /\ voted' = [voted EXCEPT ![t] = r.from]
            /\ votes' = votes \cup {[epoch |-> r.epoch, by |-> t, for |-> r.from]}
       ELSE /\ r.epoch > epoch[t]
            /\ voted' = [voted EXCEPT ![t] = None] /\ UNCHANGED votes
    /\ epoch' = [epoch EXCEPT ![t] = r.epoch]
    /\ role' = [role EXCEPT ![t] = IF r.epoch > epoch[t] THEN "unattached" ELSE @]
    /\ leader' = [leader EXCEPT ![t] = None]
    /\ heard' = [heard EXCEPT ![t] = FALSE]
    /\ IF r.epoch > epoch[t] THEN Forget(t) ELSE UNCHANGED <<granted, match>>
    /\ UNCHANGED <<log, hwm, requests, elected, committed,
                   crashes, reconfigs, calm>>

Win(s) ==
    /\ role[s] = "candidate"
    /\ IsMajority({v.by : v \in {w \in votes : w.epoch = epoch[s] /\ w.for = s}}, Voters(s))
    /\ Len(log[s]) < MaxLog
    /\ role' = [role EXCEPT ![s] = "leader"]
    /\ leader' = [leader EXCEPT ![s] = s]
    /\ log' = [log EXCEPT ![s] = Append(@, Entry(epoch[s], {}))]
    /\ match' = [match EXCEPT ![s] = [t \in Server |-> 0]]
    /\ elected' = elected \cup {[epoch |-> epoch[s], who |-> s]}
    /\ UNCHANGED <<epoch, voted, heard, granted, hwm, requests, votes,
                   committed, crashes, reconfigs, calm>>

(* BeginQuorumEpoch, or any answer that names the leader.                  *)
Learn(t, e) ==
    /\ e.who # t
    /\ e.epoch > epoch[t] \/ (e.epoch = epoch[t] /\ leader[t] = None /\ role[t] # "resigned")
    /\ epoch' = [epoch EXCEPT ![t] = e.epoch]
    /\ voted' = [voted EXCEPT ![t] = IF e.epoch > epoch[t] THEN None ELSE @]
    /\ role' = [role EXCEPT ![t] = "follower"]
    /\ leader' = [leader EXCEPT ![t] = e.who]
    /\ heard' = [heard EXCEPT ![t] = FALSE]
    /\ Forget(t)
    /\ UNCHANGED <<log, hwm, requests, votes, elected,
                   committed, crashes, reconfigs, calm>>

Consistent(t, l) == /\ Len(log[t]) <= Len(log[l])
                    /\ log[t] = <<>> \/ log[t][Len(log[t])].epoch = log[l][Len(log[t])].epoch

(* The greatest common length that the epochs of both logs allow.          *)
CommonLength(t, l) ==
    LET both == {i \in 0 .. Min(Len(log[t]), Len(log[l])) :
                    i = 0 \/ log[t][i].epoch = log[l][i].epoch}
    IN Last(both)

Fetch(t) ==
    LET l == leader[t] IN
    /\ role[t] = "follower" /\ l # None
    /\ role[l] = "leader" /\ epoch[l] = epoch[t]
    /\ heard' = [heard EXCEPT ![t] = TRUE]
    /\ IF Consistent(t, l)
       THEN /\ match' = [match EXCEPT ![l][t] = Len(log[t])]
            /\ log' = IF Len(log[t]) < Len(log[l])
                      THEN [log EXCEPT ![t] = Append(@, log[l][Len(log[t]) + 1])] ELSE log
            /\ hwm' = [hwm EXCEPT ![t] = IF Min(Len(log'[t]), hwm[l]) > @ THEN Min(Len(log'[t]), hwm[l]) ELSE @]
       ELSE /\ log' = [log EXCEPT ![t] = SubSeq(@, 1, CommonLength(t, l))]
            /\ UNCHANGED <<match, hwm>>
    /\ <<heard', match', log', hwm'>> # <<heard, match, log, hwm>>
    /\ UNCHANGED <<epoch, voted, role, leader, granted, requests, votes,
                   elected, committed, crashes, reconfigs, calm>>

(* A leader outside of the voter set does not count itself.                *)
Reached(l, n) == {t \in Voters(l) : IF t = l THEN Len(log[l]) >= n ELSE match[l][t] >= n}

Commit(l) ==
    LET reached == {n \in (hwm[l] + 1) .. Len(log[l]) :
                      log[l][n].epoch = epoch[l] /\ IsMajority(Reached(l, n), Voters(l))}
    IN
    /\ role[l] = "leader"
    /\ reached # {}
    /\ hwm' = [hwm EXCEPT ![l] = Last(reached)]
    /\ committed' = IF Last(reached) > Len(committed) THEN SubSeq(log[l], 1, Last(reached)) ELSE committed
    /\ UNCHANGED <<epoch, voted, log, role, leader, heard, granted, match,
                   requests, votes, elected, crashes, reconfigs, calm>>

Written(l) == {i \in DOMAIN log[l] : log[l][i].epoch = epoch[l] /\ log[l][i].voters = {}}

Write(l) ==
    /\ role[l] = "leader" /\ Len(log[l]) < MaxLog /\ ~calm
    /\ Cardinality(Written(l)) <= MaxWrites
    /\ log' = [log EXCEPT ![l] = Append(@, Entry(epoch[l], {}))]
    /\ UNCHANGED <<epoch, voted, role, leader, heard, granted, hwm, match,
                   requests, votes, elected, committed, crashes, reconfigs, calm>>

(* A change of the voters waits for this epoch's first entry to be         *)
(* committed, and for the change before it.                                *)
EpochHasCommitted(l) == hwm[l] > 0 /\ log[l][hwm[l]].epoch = epoch[l]
NoChangePending(l) == \A i \in VoterEntries(log[l]) : i <= hwm[l]

(* One voter more or less.                                                 *)
ChangeVoters(l) ==
    /\ role[l] = "leader" /\ Len(log[l]) < MaxLog /\ reconfigs < MaxReconfigs /\ ~calm
    /\ EpochHasCommitted(l) /\ NoChangePending(l)
    /\ \E s \in Server :
         LET new == IF s \in Voters(l) THEN Voters(l) \ {s} ELSE Voters(l) \cup {s} IN
         /\ new # {}
         /\ log' = [log EXCEPT ![l] = Append(@, Entry(epoch[l], new))]
    /\ reconfigs' = reconfigs + 1
    /\ UNCHANGED <<epoch, voted, role, leader, heard, granted, hwm, match,
                   requests, votes, elected, committed, crashes, calm>>

(* Check-quorum, a shutdown, or its own removal once committed.            *)
Resign(l) ==
    /\ role[l] = "leader"
    /\ ~calm \/ ~Current(l)
    /\ role' = [role EXCEPT ![l] = "resigned"]
    /\ leader' = [leader EXCEPT ![l] = None]
    /\ Forget(l)
    /\ UNCHANGED <<epoch, voted, log, heard, hwm, requests,
                   votes, elected, committed, crashes, reconfigs, calm>>

(* A resigned server leaves its epoch when its timer fires.                *)
LeaveEpoch(s) ==
    /\ role[s] = "resigned" /\ epoch[s] < MaxEpoch
    /\ Adopt(s, epoch[s] + 1) /\ Forget(s)
    /\ UNCHANGED <<log, hwm, requests, votes, elected,
                   committed, crashes, reconfigs, calm>>

(* A follower whose leader is gone hears it no longer.                     *)
LoseLeader(t) ==
    /\ role[t] = "follower" /\ heard[t]
    /\ role[leader[t]] # "leader" \/ epoch[leader[t]] # epoch[t]
    /\ heard' = [heard EXCEPT ![t] = FALSE]
    /\ UNCHANGED <<epoch, voted, log, role, leader, granted, hwm, match,
                   requests, votes, elected, committed, crashes, reconfigs, calm>>

Crash(s) ==
    /\ crashes < MaxCrashes /\ ~calm
    /\ crashes' = crashes + 1
    /\ role' = [role EXCEPT ![s] = IF role[s] = "leader" THEN "resigned" ELSE "unattached"]
    /\ leader' = [leader EXCEPT ![s] = None]
    /\ heard' = [heard EXCEPT ![s] = FALSE]
    /\ hwm' = [hwm EXCEPT ![s] = 0]
    /\ Forget(s)
    /\ UNCHANGED <<epoch, voted, log, requests, votes, elected, committed, reconfigs, calm>>

Protocol ==
    \/ \E s \in Server : \/ TimerFires(s) \/ GiveUp(s) \/ Stand(s) \/ Win(s)
                         \/ Fetch(s) \/ Commit(s) \/ LeaveEpoch(s) \/ LoseLeader(s)
    \/ \E s, t \in Server : PreVote(s, t)
    \/ \E t \in Server, r \in requests : Vote(t, r)
    \/ \E t \in Server, e \in elected : Learn(t, e)

Environment ==
    \E s \in Server : Write(s) \/ ChangeVoters(s) \/ Resign(s) \/ Crash(s)

Next == Protocol \/ Environment

Spec == Init /\ [][Next]_vars

SpecStanding == InitStanding /\ [][Next]_vars

-----------------------------------------------------------------------------
(* Safety                                                                  *)

TypeOK == /\ \A s \in Server : role[s] \in Roles /\ epoch[s] \in 0 .. MaxEpoch /\ hwm[s] <= Len(log[s])
          /\ \A s \in Server : role[s] = "leader" => leader[s] = s

OneLeaderAnEpoch == \A a, b \in elected : a.epoch = b.epoch => a.who = b.who

OneVoteAnEpoch == \A a, b \in votes : a.epoch = b.epoch /\ a.by = b.by => a.for = b.for

(* Nobody believes anything else to be committed.                          *)
CommittedStays == \A s \in Server : \A i \in 1 .. hwm[s] : i <= Len(committed) /\ log[s][i] = committed[i]

(* A leader of the newest epoch holds all that was ever committed.          *)
LeaderCompleteness ==
    \A s \in Server :
        role[s] = "leader" /\ (\A e \in elected : e.epoch <= epoch[s])
        => /\ Len(log[s]) >= Len(committed)
           /\ SubSeq(log[s], 1, Len(committed)) = committed

LogsMatch ==
    \A s, t \in Server : \A i \in DOMAIN log[s] \cap DOMAIN log[t] :
        log[s][i].epoch = log[t][i].epoch => SubSeq(log[s], 1, i) = SubSeq(log[t], 1, i)

ReconfigurationByOne ==
    \A s \in Server : \A i \in VoterEntries(log[s]) :
        LET before == {j \in VoterEntries(log[s]) : j < i}
            old == IF before = {} THEN InitialVoters ELSE log[s][Last(before)].voters
        IN Cardinality((old \ log[s][i].voters) \cup (log[s][i].voters \ old)) = 1

(* To be violated, by a run whose world is wide enough: a server has joined, *)
(* a leader has removed itself, and its successor commits.                 *)
NobodyTakesOver ==
    \A s \in Server : \A e \in elected :
        ~(/\ role[s] = "leader" /\ EpochHasCommitted(s)
          /\ Voters(s) \ InitialVoters # {}
          /\ \E i \in VoterEntries(log[s]) : log[s][i].epoch = e.epoch /\ e.who \notin log[s][i].voters
          /\ e.who # s /\ e.epoch < epoch[s])

CommittedOnlyGrows == [][ /\ Len(committed) <= Len(committed')
                          /\ SubSeq(committed', 1, Len(committed)) = committed ]_vars

-----------------------------------------------------------------------------
(* Progress: from the moment of calm on (no crash, no resignation, no      *)
(* write, timers that do not collide) a leader is found and its first      *)
(* entry is committed.  One epoch is kept in reserve for it.               *)

CalmDown == /\ ~calm /\ \A s \in Server : epoch[s] < MaxEpoch - 1 /\ Len(log[s]) < MaxLog
            /\ role' = [s \in Server |-> IF role[s] \in {"prospective", "candidate"} THEN "unattached" ELSE role[s]]
            /\ calm' = TRUE
            /\ granted' = [s \in Server |-> {}]
            /\ UNCHANGED <<epoch, voted, log, leader, heard, hwm, match,
                           requests, votes, elected, committed, crashes, reconfigs>>

LiveNext == Next \/ CalmDown

LiveSpec ==
    /\ Init /\ [][LiveNext]_vars
    /\ \A s \in Server : /\ WF_vars(calm /\ TimerFires(s)) /\ WF_vars(calm /\ GiveUp(s))
                         /\ WF_vars(calm /\ Stand(s)) /\ WF_vars(calm /\ Win(s))
                         /\ WF_vars(calm /\ Fetch(s)) /\ WF_vars(calm /\ Commit(s))
                         /\ WF_vars(calm /\ LeaveEpoch(s)) /\ WF_vars(calm /\ LoseLeader(s))
                         /\ WF_vars(calm /\ Resign(s))
    /\ \A s, t \in Server : WF_vars(calm /\ PreVote(s, t))
    /\ \A t \in Server : /\ WF_vars(calm /\ \E r \in requests : Vote(t, r))
                         /\ WF_vars(calm /\ \E e \in elected : Learn(t, e))
    /\ \A s \in Server : SF_vars(calm /\ TimerFires(s))

HasCommittingLeader ==
    \E l \in Server : /\ role[l] = "leader" /\ hwm[l] > 0 /\ log[l][hwm[l]].epoch = epoch[l]

Progress == calm ~> HasCommittingLeader
=============================================================================
