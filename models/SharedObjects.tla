---------------------------- MODULE SharedObjects ----------------------------
(* Content that several spaces share: written once, listed by the records that *)
(* use it, collected when no living record lists it.                          *)
(*                                                                            *)
(* A copy is a stored object. Where an object can be deleted under a condition *)
(* (SQL, Redis), a condemned copy is rescued by taking its mark away. Where it *)
(* cannot (a bucket), whoever finds it condemned stores the next copy.        *)
EXTENDS Integers, FiniteSets, TLC

CONSTANTS
    Writers, Collectors, Spaces,
    MaxCopies,     \* how many copies of the content may ever be stored
    MaxRounds,     \* how many collections may begin
    Conditional,   \* a copy is deleted only while it bears the mark of this collection
    Rescue,        \* a condemned copy is taken back, and not stored again
    RaiseEpochs,   \* a collection raises the epoch of every space, and commits compare it
    LookAgain      \* and then looks once more at what is listed

VARIABLES
    stored,     \* copies that exist
    mark,       \* copy -> the round that condemned it, or 0
    listed,     \* space -> copies that its living records list
    epoch,      \* space -> number
    writer, collector,
    copies, rounds

vars == <<stored, mark, listed, epoch, writer, collector, copies, rounds>>

Idle == [pc |-> "idle"]
Listed == UNION {listed[s] : s \in Spaces}

Init ==
    /\ stored = {}
    /\ mark = [c \in 1..MaxCopies |-> 0]
    /\ listed = [s \in Spaces |-> {}]
    /\ epoch = [s \in Spaces |-> 0]
    /\ writer = [w \in Writers |-> Idle]
    /\ collector = [c \in Collectors |-> Idle]
    /\ copies = 0
    /\ rounds = 0

(* A writer notes the epoch of its space first, and looks for the content then. *)
Begin(w) ==
    /\ writer[w].pc = "idle"
    /\ \E s \in Spaces :
        writer' = [writer EXCEPT ![w] = [pc |-> "looking", space |-> s, epoch |-> epoch[s]]]
    /\ UNCHANGED <<stored, mark, listed, epoch, collector, copies, rounds>>

Have(w, copy) ==
    writer' = [writer EXCEPT ![w] = [pc |-> "ready", space |-> writer[w].space,
                                     epoch |-> writer[w].epoch, copy |-> copy]]

Find(w) ==
    /\ writer[w].pc = "looking"
    /\ \/ /\ \E c \in stored : mark[c] = 0 /\ Have(w, c)
          /\ UNCHANGED <<stored, mark, copies>>
       \/ /\ \A c \in stored : mark[c] # 0
          /\ \/ /\ Rescue
                /\ \E c \in stored : Have(w, c) /\ mark' = [mark EXCEPT ![c] = 0]
                /\ UNCHANGED <<stored, copies>>
             \/ /\ IF Rescue THEN stored = {} ELSE TRUE
                /\ copies < MaxCopies
                /\ copies' = copies + 1
                /\ stored' = stored \cup {copies + 1}
                /\ Have(w, copies + 1)
                /\ UNCHANGED mark
    /\ UNCHANGED <<listed, epoch, collector, rounds>>

Land(w) ==
    LET it == writer[w]
        may == RaiseEpochs => epoch[it.space] = it.epoch
    IN
    /\ it.pc = "ready"
    /\ listed' = IF may THEN [listed EXCEPT ![it.space] = @ \cup {it.copy}] ELSE listed
    /\ writer' = [writer EXCEPT ![w] = Idle]
    /\ UNCHANGED <<stored, mark, epoch, collector, copies, rounds>>

(* The last record of a space that lists a copy is collected with its segment. *)
Forget ==
    /\ \E s \in Spaces : \E c \in listed[s] : listed' = [listed EXCEPT ![s] = @ \ {c}]
    /\ UNCHANGED <<stored, mark, epoch, writer, collector, copies, rounds>>

Condemn(k) ==
    /\ collector[k].pc = "idle"
    /\ rounds < MaxRounds
    /\ \E c \in stored \ Listed :
        /\ mark' = [mark EXCEPT ![c] = rounds + 1]
        /\ collector' = [collector EXCEPT ![k] =
              [pc |-> "raising", copy |-> c, round |-> rounds + 1, left |-> Spaces]]
    /\ rounds' = rounds + 1
    /\ UNCHANGED <<stored, listed, epoch, writer, copies>>

Raise(k) ==
    LET it == collector[k] IN
    /\ it.pc = "raising"
    /\ IF it.left = {}
       THEN /\ collector' = [collector EXCEPT ![k].pc = "raised"]
            /\ UNCHANGED epoch
       ELSE \E s \in it.left :
            /\ epoch' = [epoch EXCEPT ![s] = @ + 1]
            /\ collector' = [collector EXCEPT ![k].left = @ \ {s}]
    /\ UNCHANGED <<stored, mark, listed, writer, copies, rounds>>

Recheck(k) ==
    LET it == collector[k]
        spared == LookAgain /\ it.copy \in Listed
    IN
    /\ it.pc = "raised"
    /\ collector' = [collector EXCEPT ![k] = IF spared THEN Idle ELSE [@ EXCEPT !.pc = "waiting"]]
    /\ mark' = IF spared /\ mark[it.copy] = it.round THEN [mark EXCEPT ![it.copy] = 0] ELSE mark
    /\ UNCHANGED <<stored, listed, epoch, writer, copies, rounds>>

Delete(k) ==
    LET it == collector[k] IN
    /\ it.pc = "waiting"
    /\ stored' = IF Conditional => mark[it.copy] = it.round THEN stored \ {it.copy} ELSE stored
    /\ collector' = [collector EXCEPT ![k] = Idle]
    /\ UNCHANGED <<mark, listed, epoch, writer, copies, rounds>>

Die ==
    /\ \E k \in Collectors : /\ collector[k].pc # "idle"
                             /\ collector' = [collector EXCEPT ![k] = Idle]
    /\ UNCHANGED <<stored, mark, listed, epoch, writer, copies, rounds>>

Next ==
    \/ \E w \in Writers : Begin(w) \/ Find(w) \/ Land(w)
    \/ Forget \/ Die
    \/ \E k \in Collectors : Condemn(k) \/ Raise(k) \/ Recheck(k) \/ Delete(k)

Spec == Init /\ [][Next]_vars

ListedIsStored == Listed \subseteq stored

Alike == Permutations(Writers) \cup Permutations(Collectors) \cup Permutations(Spaces)
=============================================================================
