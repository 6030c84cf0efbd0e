------------------------------ MODULE Records ------------------------------
(* One space: commits as records of a log, packing of its tail into segments, *)
(* and collection of what nothing reaches any more.                           *)
(*                                                                            *)
(* A record brings one part of a value, and its value may use parts of the    *)
(* commit that it builds on. The space's row names all there is: it changes   *)
(* by compare-and-swap alone. Segments are objects beside it. Where a segment *)
(* and the row can change in one transaction (SQL), Transactional is TRUE.    *)
EXTENDS Integers, FiniteSets, TLC

CONSTANTS
    Writers, Packers, Collectors, Branches,
    MaxSeq,            \* how many records may land
    Group,             \* a dictionary lies in the same group of so many sequences
    MaxNames,          \* how many segments may be written
    Transactional,     \* a segment is written and named in one transaction
    GroupRule,         \* dictionaries stay inside of a group; packing takes whole ones
    ComparePacked,     \* a commit compares what was packed since its decision
    CompareCut,        \* a cut inside of a group compares the sequence
    CompareEpoch,      \* who builds on what is no head compares what was collected since
    LookAgain,         \* a collection looks at what landed since its look
    FreshNames,        \* each attempt to write a segment takes a name of its own
    SwapBeforeRemoval  \* before unnamed segments are removed, the row is swapped

VARIABLES
    row,       \* [seq, packed, epoch, refs, tail, segs]
    current,   \* packers and collectors whose look at the row is still its newest state
    stored,    \* segments that exist, named or not: name -> parts
    records,   \* sequence -> [line (its ancestors and itself), value, dictionary]; never changes
    kept,      \* commits that recent operations and pins name
    writer, packer, collector,
    names      \* how many names were given

vars == <<row, current, stored, records, kept, writer, packer, collector, names>>

Seqs == 1..MaxSeq
GroupOf(n) == (n - 1) \div Group

Roots(r, k) == ({r.refs[b] : b \in Branches} \cup k) \ {0}
Alive(r, k) == UNION {records[n].line : n \in Roots(r, k)}
AliveNow == Alive(row, kept)
PartsOf(commits) == UNION {records[n].value : n \in commits}
Present(r) == r.tail \cup UNION {stored[s] : s \in r.segs \cap DOMAIN stored}

Idle == [pc |-> "idle"]
Without(f, gone) == [x \in DOMAIN f \ gone |-> f[x]]
With(f, name, parts) == [x \in DOMAIN f \cup {name} |-> IF x = name THEN parts ELSE f[x]]
Swapped(r) == current' = {} /\ row' = r
Unswapped == UNCHANGED <<row, current>>

Init ==
    /\ row = [seq |-> 0, packed |-> 0, epoch |-> 0,
              refs |-> [b \in Branches |-> 0], tail |-> {}, segs |-> {}]
    /\ current = {}
    /\ stored = [x \in {} |-> {}]
    /\ records = [x \in {} |-> {}]
    /\ kept = {}
    /\ writer = [w \in Writers |-> Idle]
    /\ packer = [p \in Packers |-> Idle]
    /\ collector = [c \in Collectors |-> Idle]
    /\ names = 0

(* ------------------------------- commits -------------------------------- *)

Dictionaries(r) ==
    {0} \cup {d \in r.tail : GroupRule => GroupOf(d) = GroupOf(r.seq + 1)}

Decide(w) ==
    /\ writer[w].pc = "idle"
    /\ row.seq < MaxSeq
    /\ \E b \in Branches, d \in Dictionaries(row) :
       \E base \in IF row.refs[b] # 0 THEN {row.refs[b]} ELSE {0} \cup Alive(row, kept) :
       \E reused \in {{}, IF base = 0 THEN {} ELSE records[base].value} :
          writer' = [writer EXCEPT ![w] =
              [pc |-> "decided", branch |-> b, ref |-> row.refs[b], base |-> base,
               reused |-> reused, dictionary |-> d, seq |-> row.seq, packed |-> row.packed, epoch |-> row.epoch]]
    /\ Unswapped /\ UNCHANGED <<stored, records, kept, packer, collector, names>>

(* The record lands if the space is as it was when the writer decided. Who     *)
(* lost the sequence to another branch sends again, framed anew if need be.   *)
Land(w) ==
    LET it == writer[w]
        fits == row.seq = it.seq /\ (ComparePacked => row.packed = it.packed)
        n == row.seq + 1
        same == /\ GroupOf(n) = GroupOf(it.seq + 1) \/ ~GroupRule
                /\ it.dictionary > row.packed \/ ~ComparePacked
        \* A head is reachable. What an operation kept may have expired, and been collected.
        there == \/ it.base \in {0} \cup {row.refs[b] : b \in Branches}
                 \/ (CompareEpoch => row.epoch = it.epoch)
    IN
    /\ it.pc = "decided"
    /\ \/ /\ \/ row.refs[it.branch] # it.ref
             \/ ~there
             \/ row.seq = MaxSeq
          /\ writer' = [writer EXCEPT ![w] = Idle]
          /\ Unswapped /\ UNCHANGED <<records, kept>>
       \/ /\ row.refs[it.branch] = it.ref
          /\ there
          /\ row.seq < MaxSeq
          /\ IF fits
             THEN /\ Swapped([row EXCEPT !.seq = n, !.tail = @ \cup {n}, !.refs[it.branch] = n])
                  /\ records' = [x \in DOMAIN records \cup {n} |->
                        IF x = n THEN [line |-> {n} \cup (IF it.base = 0 THEN {} ELSE records[it.base].line),
                                       value |-> it.reused \cup {n},
                                       dictionary |-> it.dictionary]
                        ELSE records[x]]
                  /\ kept' = kept \cup ({it.ref} \ {0})
                  /\ writer' = [writer EXCEPT ![w] = Idle]
             ELSE /\ writer' = [writer EXCEPT ![w].seq = row.seq, ![w].packed = row.packed,
                                              ![w].dictionary = IF same THEN @ ELSE 0]
                  /\ Unswapped /\ UNCHANGED <<records, kept>>
    /\ UNCHANGED <<stored, packer, collector, names>>

MoveRef ==
    /\ \E b \in Branches : \E n \in {0} \cup Alive(row, kept) :
        /\ row.refs[b] # 0
        /\ row.refs[b] # n
        /\ Swapped([row EXCEPT !.refs[b] = n])
        /\ kept' = kept \cup {row.refs[b]}
    /\ UNCHANGED <<stored, records, writer, packer, collector, names>>

Expire ==
    /\ \E n \in kept : kept' = kept \ {n}
    /\ Unswapped /\ UNCHANGED <<stored, records, writer, packer, collector, names>>

(* ------------------------------- packing -------------------------------- *)

Cuts == LET whole == (row.seq \div Group) * Group
        IN {cut \in {row.seq} \cup {whole} : cut > row.packed}

PackLook(p) ==
    /\ packer[p].pc = "idle"
    /\ \E cut \in Cuts :
        packer' = [packer EXCEPT ![p] =
            [pc |-> "looked", cut |-> cut, seq |-> row.seq, packed |-> row.packed,
             parts |-> {n \in row.tail : n <= cut}]]
    /\ current' = current \cup {p}
    /\ UNCHANGED <<row, stored, records, kept, writer, collector, names>>

(* With names made of what is packed, two packers of one tail share a name. *)
NewName(cut) == IF FreshNames THEN names + 1 ELSE cut

MayCut(p, it) ==
    /\ row.packed = it.packed
    /\ (CompareCut /\ it.cut % Group # 0) => row.seq = it.seq
    /\ ~Transactional => p \in current

Packed(it, name) ==
    Swapped([row EXCEPT !.packed = it.cut, !.tail = {n \in @ : n > it.cut},
                        !.segs = @ \cup {name}])

PackPut(p) ==
    LET it == packer[p]
        name == NewName(it.cut)
    IN
    /\ it.pc = "looked"
    /\ names < MaxNames
    /\ names' = names + 1
    /\ IF Transactional
       THEN /\ packer' = [packer EXCEPT ![p] = Idle]
            /\ IF MayCut(p, it)
               THEN stored' = With(stored, name, it.parts) /\ Packed(it, name)
               ELSE Unswapped /\ UNCHANGED stored
       ELSE /\ stored' = With(stored, name, it.parts)
            /\ packer' = [packer EXCEPT ![p] =
                 [pc |-> "put", name |-> name, cut |-> it.cut, seq |-> it.seq,
                  packed |-> it.packed]]
            /\ Unswapped
    /\ UNCHANGED <<records, kept, writer, collector>>

PackSwap(p) ==
    LET it == packer[p] IN
    /\ it.pc = "put"
    /\ packer' = [packer EXCEPT ![p] = Idle]
    /\ IF MayCut(p, it) THEN Packed(it, it.name) ELSE Unswapped
    /\ UNCHANGED <<stored, records, kept, writer, collector, names>>

(* ------------------------------ collection ------------------------------ *)

GcLook(c) ==
    /\ collector[c].pc = "idle"
    /\ \E s \in row.segs :
        /\ ~(stored[s] \subseteq PartsOf(Alive(row, kept)))
        /\ collector' = [collector EXCEPT ![c] =
            [pc |-> "looked", seg |-> s, alive |-> Alive(row, kept), seq |-> row.seq]]
    /\ current' = current \cup {c}
    /\ UNCHANGED <<row, stored, records, kept, writer, packer, names>>

(* What landed since the look may build on what the look found dead. *)
NothingRisen(it) ==
    LookAgain => \A n \in Alive(row, kept) : n > it.seq \/ n \in it.alive

GcSwap(c) ==
    LET it == collector[c]
        name == IF FreshNames THEN names + 1 ELSE MaxNames + it.seg
        parts == stored[it.seg] \cap PartsOf(it.alive)
        may == /\ it.seg \in row.segs
               /\ NothingRisen(it)
               /\ ~Transactional => c \in current
    IN
    /\ it.pc = "looked"
    /\ collector' = [collector EXCEPT ![c] = Idle]
    /\ IF may /\ names < MaxNames
       THEN /\ names' = names + 1
            /\ Swapped([row EXCEPT !.segs = (@ \ {it.seg}) \cup {name}, !.epoch = @ + 1])
            /\ stored' = IF Transactional
                         THEN With(Without(stored, {it.seg}), name, parts)
                         ELSE With(stored, name, parts)
       ELSE Unswapped /\ UNCHANGED <<stored, names>>
    /\ UNCHANGED <<records, kept, writer, packer>>

SweepLook(c) ==
    /\ ~Transactional
    /\ collector[c].pc = "idle"
    /\ DOMAIN stored \ row.segs # {}
    /\ IF SwapBeforeRemoval THEN Swapped(row) ELSE Unswapped
    /\ collector' = [collector EXCEPT ![c] =
                        [pc |-> "sweeping", gone |-> DOMAIN stored \ row.segs]]
    /\ UNCHANGED <<stored, records, kept, writer, packer, names>>

SweepRemove(c) ==
    /\ collector[c].pc = "sweeping"
    /\ stored' = Without(stored, collector[c].gone)
    /\ collector' = [collector EXCEPT ![c] = Idle]
    /\ Unswapped /\ UNCHANGED <<records, kept, writer, packer, names>>

(* A process may die at every step. *)
Die ==
    /\ \/ \E p \in Packers : /\ packer[p].pc # "idle"
                             /\ packer' = [packer EXCEPT ![p] = Idle]
                             /\ UNCHANGED <<writer, collector>>
       \/ \E c \in Collectors : /\ collector[c].pc # "idle"
                                /\ collector' = [collector EXCEPT ![c] = Idle]
                                /\ UNCHANGED <<writer, packer>>
    /\ Unswapped /\ UNCHANGED <<stored, records, kept, names>>

Next ==
    \/ \E w \in Writers : Decide(w) \/ Land(w)
    \/ MoveRef \/ Expire \/ Die
    \/ \E p \in Packers : PackLook(p) \/ PackPut(p) \/ PackSwap(p)
    \/ \E c \in Collectors : GcLook(c) \/ GcSwap(c) \/ SweepLook(c) \/ SweepRemove(c)

Spec == Init /\ [][Next]_vars

(* ------------------------------ properties ------------------------------ *)

(* What a root reaches is there, part by part. *)
Readable == PartsOf(Alive(row, kept)) \subseteq Present(row)

(* A reader that finds a segment missing reads the row again: if the row still *)
(* names it, it is damage. It never is.                                        *)
NamedIsStored == row.segs \subseteq DOMAIN stored

(* What a record of the tail was compressed against lies in the tail too. *)
DictionariesStay ==
    \A n \in row.tail : records[n].dictionary = 0 \/ records[n].dictionary \in row.tail

(* Only the end of an operation's grace takes a commit out of reach. *)
NothingLost ==
    [][\/ (kept' \subseteq kept /\ kept' # kept)
       \/ AliveNow \subseteq AliveNow']_vars
Alike == Permutations(Writers) \cup Permutations(Branches) \cup Permutations(Packers) \cup Permutations(Collectors)
=============================================================================
