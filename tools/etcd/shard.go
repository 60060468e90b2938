// SPDX-License-Identifier: GPL-2.0-only

package wqetcd

// The state machine of a shard, as one member sees it. It knows no etcd and no clock.
//
//	free --wanted--> claiming --claimed--> owned --unwanted, lost--> releasing
//	 ^ ^                |                                               |
//	 | +----refused-----+                                               |
//	 +-----------------------------------------------released-----------+
//
// free also becomes releasing by strayed: a try of a claim took place after the shard was handed over.
// owned is the only state in which runs begin. A shard is handed over, or lost, while its runs go
// on: each run has an entry of its own in etcd, and the new owner begins no run of such a key. A
// release deletes the owner key only if it is ours, so a shard that is lost to another member stays
// with it.

type shardState int

const (
	free shardState = iota
	claiming
	owned
	releasing
	shardStates
)

var stateNames = [shardStates]string{"free", "claiming", "owned", "releasing"}

func (s shardState) String() string { return stateNames[s] }

type shardEvent int

const (
	wanted   shardEvent = iota // this member should own the shard, and no member owns it
	unwanted                   // another member should own it
	claimed                    // the owner key was created
	refused                    // another member created it first, or etcd did not answer
	released                   // the owner key was deleted, or it is not known
	lost                       // the lease ended, or the owner key is not ours any more
	strayed                    // etcd has an owner key of this session that the member does not know of
)

type shardAction int

const (
	nothing   shardAction = iota
	doClaim               // create the owner key
	doStart               // list and watch the needs
	doRelease             // stop the watch, cancel pending runs, and delete the owner key
	doDrop                // delete the owner key
)

type transition struct {
	from shardState
	on   shardEvent
}

var transitions = map[transition]struct {
	to shardState
	do shardAction
}{
	{free, wanted}:        {claiming, doClaim},
	{claiming, claimed}:   {owned, doStart},
	{claiming, refused}:   {free, nothing},
	{free, strayed}:       {releasing, doDrop},
	{owned, unwanted}:     {releasing, doRelease},
	{owned, lost}:         {releasing, doRelease},
	{releasing, released}: {free, nothing},
}

// next returns the state after an event. An event that the state does not expect changes nothing:
// it is late, or it was reported twice.
func (s shardState) next(e shardEvent) (shardState, shardAction) {
	if t, ok := transitions[transition{s, e}]; ok {
		return t.to, t.do
	}
	return s, nothing
}
