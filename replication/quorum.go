package replication

import (
	"slices"

	"qserver/storage"
)

// share tells the store up to where the -min-slaves have its log, by what they have acked over their present connections.
func (m *Master) share(st *storage.Store) {
	if m.MinSlaves <= 0 {
		return
	}
	var durable []uint64
	m.mu.Lock()
	for _, p := range m.peers {
		p.mu.Lock()
		if p.state == StateFollowing && p.lag.have > 0 { // it has acked something
			durable = append(durable, p.lag.have)
		}
		p.mu.Unlock()
	}
	m.mu.Unlock()
	if len(durable) < m.MinSlaves {
		return
	}
	slices.Sort(durable)
	st.Shared(durable[len(durable)-m.MinSlaves], len(durable))
}
