// SPDX-License-Identifier: GPL-2.0-only

package main

// The state machine of a shard, as one member sees it. It knows no etcd and no clock.
//
//	free --wanted--> claiming --claimed--> owned --unwanted--> leaving --idle--> releasing
//	  ^                 |                    |                    |                  |
//	  +----refused------+                    +-------lost---------+                  |
//	  |                                                |                             |
//	  +----------------------idle------------------- dying                           |
//	  +----------------------------------released------------------------------------+
//
// owned is the only state in which runs begin. leaving lets them end, dying kills them. So a shard
// is handed over after its runs have ended. If the lease of the member ends early, or another
// program deletes the owner key, the shard is lost: the runs are killed, and nothing is released,
// because the owner key belongs to another member by then.

type shardState int

const (
	free shardState = iota
	claiming
	owned
	leaving
	releasing
	dying
	shardStates
)

var stateNames = [shardStates]string{"free", "claiming", "owned", "leaving", "releasing", "dying"}

func (s shardState) String() string { return stateNames[s] }

type shardEvent int

const (
	wanted   shardEvent = iota // this member should own the shard, and no member owns it
	unwanted                   // another member should own it
	claimed                    // the owner key was created
	refused                    // another member created it first, or etcd did not answer
	idle                       // no run is in progress
	released                   // the owner key was deleted, or it is not known
	lost                       // the lease ended, or the owner key is not ours any more
)

type shardAction int

const (
	nothing   shardAction = iota
	doClaim               // create the owner key
	doStart               // list and watch the needs
	doDrain               // stop the watch and cancel pending runs
	doRelease             // delete the owner key
	doKill                // doDrain, and kill the runs
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
	{owned, unwanted}:     {leaving, doDrain},
	{owned, lost}:         {dying, doKill},
	{leaving, idle}:       {releasing, doRelease},
	{leaving, lost}:       {dying, doKill},
	{releasing, released}: {free, nothing},
	{dying, idle}:         {free, nothing},
}

// next returns the state after an event. An event that the state does not expect changes nothing:
// it is late, or it was reported twice.
func (s shardState) next(e shardEvent) (shardState, shardAction) {
	if t, ok := transitions[transition{s, e}]; ok {
		return t.to, t.do
	}
	return s, nothing
}
