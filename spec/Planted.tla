------------------------------- MODULE Planted -------------------------------
(***************************************************************************)
(* Rules of KRaft.tla that are wrong on purpose: TLC has to find out.  A    *)
(* configuration puts one of them in the place of the right one.           *)
(***************************************************************************)
EXTENDS KRaft

(* For Voters: a set acts only once it is known to be committed.           *)
VotersOnceCommitted(s) ==
    LET known == {i \in VoterEntries(log[s]) : i <= hwm[s]} IN
    IF known = {} THEN InitialVoters ELSE log[s][Last(known)].voters

(* For EpochHasCommitted, NoChangePending: there is nothing to wait for.   *)
Always(l) == TRUE

(* For Reached: a leader outside of the voter set counts itself.           *)
ReachedWithMe(l, n) == {t \in Voters(l) \cup {l} : IF t = l THEN Len(log[l]) >= n ELSE match[l][t] >= n}

(* For IsMajority, with ReachedWithMe: of those who count, not of the set.  *)
IsMajorityInAll(some, all) == Cardinality(some) * 2 > Cardinality(all)

(* For PreVote, with Always for PreVoteWon: nobody asks before it stands.   *)
(* No rule of safety rests on pre-votes, and the stories are shorter.      *)
Unasked(s, t) == FALSE

(* To keep a world of four servers small: two that stand, two that only    *)
(* vote.                                                                   *)
TwoStand == Cardinality({r.from : r \in requests} \cup {s \in Server : role[s] = "prospective"}) <= 2
=============================================================================
