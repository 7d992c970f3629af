package queue

import (
	"maps"
	"slices"
)

// Epoch is a stretch of the history that one node wrote. A history without any is the first node's from its beginning; a
// node that takes writes after it has followed another begins the next. So two nodes that both wrote after the same
// record can be told apart by the LSN at which one's next epoch begins, also where the records are not there any more.
type Epoch struct {
	Number uint64 // 2 for the first that is recorded
	Nonce  uint64 // drawn at random: two nodes may begin an epoch of the same number
	LSN    uint64 // of its record: the epoch before ends with the record before that
}

// epochsKept is how many epochs are remembered: those before are taken to agree.
const epochsKept = 32

// withEpoch returns epochs with the one that op begins; epochs itself stays as it is.
func withEpoch(epochs []Epoch, op *Op) []Epoch {
	first := max(0, len(epochs)+1-epochsKept)
	return append(slices.Clone(epochs[first:]), Epoch{op.ID, op.Nonce, op.LSN})
}

// Epochs returns the epochs of the history so far, oldest first; it must not be changed.
func (ix *Index) Epochs() []Epoch { return ix.epochs }

// NextEpoch returns the Op that begins an epoch.
func (ix *Index) NextEpoch(nonce uint64) Op {
	number := uint64(1)
	if n := len(ix.epochs); n > 0 {
		number = ix.epochs[n-1].Number
	}
	return Op{Kind: KindEpoch, ID: number + 1, Nonce: nonce}
}

// Follow says whether another node decides from here on: then nothing expires by this one's clock, since a record of the
// other's will say so. What is held must have been given back before.
func (ix *Index) Follow(following bool) { ix.following = following }

// Following says whether another node decides.
func (ix *Index) Following() bool { return ix.following }

// Yield ends every wait without a result, and gives back what is held, one delivery counted: before another node decides.
// An ack that is staged stays one.
func (ix *Index) Yield() {
	ix.endWaits()
	for _, m := range slices.Collect(maps.Values(ix.held)) {
		if r := m.res; r != nil && r.current() {
			ix.countDelivery(r)
			ix.giveBack(r)
		}
	}
}

// Lead makes this node the one that decides: receipts which the one before may have given out are skipped.
func (ix *Index) Lead() {
	ix.following = false
	ix.timesCut = TimeKey{}
	ix.receipt, ix.receiptsAsked, ix.firstGiven = ix.receiptsEnd, ix.receiptsEnd, ix.receiptsEnd
}

// ofQueue says whether ops of this kind are about a queue that was created before.
func (k Kind) ofQueue() bool {
	switch k {
	case KindSeal, KindCreate, KindReceipts, KindEpoch:
		return false
	}
	return true
}
