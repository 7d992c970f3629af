package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"qserver/bench/client"
)

// batchBytes is how much the bodies of one batch may be together.
const batchBytes = 512 << 10

// meta measures batches of quiet meta commands.
func (c *scaleCell) meta(ctx context.Context) error {
	first, ok := c.lanes[0].c.(*client.Memcache)
	if !ok {
		return nil
	}
	if ok, err := (client.Meta{Memcache: first}).Supported(); err != nil {
		return err
	} else if !ok {
		c.noMeta = true
		return nil
	}
	c.depth = max(min(c.depth, batchBytes/len(c.msg.body)), 1)
	if err := c.empty(); err != nil {
		return err
	}
	if err := c.stores(ctx, opMetaSet, c.metaStore); err != nil {
		return err
	}
	return c.takes(ctx, opMetaTake, opMetaSet, c.metaTake)
}

// metaStore stores batches. Messages count when the batch was answered.
func (c *scaleCell) metaStore(i int, done *tally, stop *atomic.Bool) error {
	l := c.lanes[i]
	m := client.Meta{Memcache: l.c.(*client.Memcache)}
	for from, most := c.sent[i], c.unanswered(); !stop.Load() && c.sent[i]-from < most; {
		for range c.depth {
			m.AppendSet(l.setKey(c.sent[i]), l.msg.flags, l.msg.number(l.id(c.sent[i])))
			c.sent[i]++
		}
		if err := m.End(); err != nil {
			return err
		}
		if _, _, found, err := m.Next(); err != nil {
			return err
		} else if found {
			return errors.New("a batch of ms was answered by a value")
		}
		done.n.Add(int64(c.depth))
	}
	return nil
}

// metaTake takes batches of get+delete pairs.
func (c *scaleCell) metaTake(i int, done *tally, stop *atomic.Bool) error {
	l := c.lanes[i]
	m := client.Meta{Memcache: l.c.(*client.Memcache)}
	for !stop.Load() {
		want := int64(c.depth)
		if !c.shared {
			want = min(want, c.sent[i]-c.next[i])
		}
		for sequence := c.next[i]; sequence < c.next[i]+want; sequence++ {
			m.AppendGet(l.keys.at(sequence))
			m.AppendDelete(l.keys.at(sequence))
		}
		if want == 0 {
			return nil
		}
		if err := m.End(); err != nil {
			return err
		}
		took := int64(0)
		for {
			body, flags, found, err := m.Next()
			if err != nil {
				return err
			}
			if !found {
				break
			}
			if err := c.received(i, body, flags); err != nil {
				return err
			}
			took++
		}
		done.n.Add(took)
		switch {
		case took < want && c.shared:
			return nil
		case took < want:
			return fmt.Errorf("%d messages of a batch of %d came: %w", took, want, errMissing)
		}
	}
	return nil
}
