package main

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"strings"
)

// The operations that scale knows, in the order in which a server is measured; opSet always is, since it fills.
const (
	opSet     = "set"
	opTake    = "get+delete"
	opChain   = "close/open"
	opNoreply = "noreply set"
	opMeta    = "meta"
	// meta has two rows
	opMetaSet  = "set, pipelined meta"
	opMetaTake = "get+delete, pipelined meta"
)

func scaleScenario() scenario {
	return scenario{
		name:    "scale",
		title:   "set, get+delete, close/open, noreply and pipelined meta by connections and size of bodies, ratios to peers",
		servers: allPeers,
		seconds: 1,
		turns:   5,
		about: `
Closed loop: each connection stores messages as fast as they are answered, then gets and deletes those that were
stored, and so on through -ops. The servers are measured in turns, each started anew, one after the other at each
size and number of connections; ratios are taken turn by turn between servers that promise the same about syncing,
and printed as their median with the lowest and highest. A queue server has a queue for each connection (-shared: one
for all). memcached overwrites one key a connection with its sets, which is its best case; for get+delete it is given,
untimed, messages under a key each, as many as a queue would hold. Servers that take faster than they store are given
more, untimed too. close/open: ack and take the next in one round trip. noreply: streams, each fenced by a version command
every mebibyte (with more than 8 connections more often). meta: batches of -depth quiet ms, then of mg+md pairs, each
ended by mn. append is no server but a loop
of write and fdatasync, for sets of one connection. What is left after a window is drained, and every message is
received once with its bytes, in order where a connection has its own queue. The whole of what this project is
measured by: -connections 1,8,64,512 -sizes 200,4096,65536 -ops all.`,
		prepare: func(fs *flag.FlagSet) func(context.Context, *env, *report) error {
			var o scaleOptions
			connections := fs.String("connections", "1,8,64", "numbers of connections")
			sizes := fs.String("sizes", "200", "bytes of a body, comma separated")
			ops := fs.String("ops", "take,chain", "besides set: take (get+delete), chain (close/open), noreply, meta; or all, or none")
			fs.BoolVar(&o.shared, "shared", false, "all connections share one queue")
			fs.IntVar(&o.depth, "depth", 64, "requests of a batch of pipelined meta commands")
			return func(ctx context.Context, e *env, r *report) (err error) {
				if o.connections, err = parseNumbers(*connections); err != nil {
					return fmt.Errorf("-connections: %w", err)
				}
				if o.sizes, err = parseNumbers(*sizes); err != nil {
					return fmt.Errorf("-sizes: %w", err)
				}
				if o.depth < 1 || o.depth > 1000 {
					return fmt.Errorf("-depth must be from 1 to 1,000")
				}
				if o.ops, err = parseOps(*ops); err != nil {
					return err
				}
				return runScale(ctx, e, r, o)
			}
		},
	}
}

type scaleOptions struct {
	connections, sizes []int
	ops                []string
	shared             bool
	depth              int
}

func parseOps(list string) ([]string, error) {
	known := map[string]string{"take": opTake, "chain": opChain, "noreply": opNoreply, "meta": opMeta}
	ops := []string{opSet}
	for word := range strings.SplitSeq(list, ",") {
		switch word = strings.TrimSpace(word); {
		case word == "all":
			return []string{opSet, opTake, opChain, opNoreply, opMeta}, nil
		case word == "none" || word == "set":
		case known[word] != "":
			ops = append(ops, known[word])
		default:
			return nil, fmt.Errorf("-ops: %q is none of take, chain, noreply, meta, all, none", word)
		}
	}
	return ops, nil
}

func runScale(ctx context.Context, e *env, r *report, o scaleOptions) error {
	all, err := e.contestants(r)
	if err != nil {
		return err
	}
	queues := "a queue each"
	if o.shared {
		queues = "one queue"
	}
	table := e.newComparison(r, all, fmt.Sprintf("%s, %d turns", queues, e.turns))
	plots := make(map[string]*plot)
	for _, bytes := range o.sizes {
		msg, err := newMessage(bytes)
		if err != nil {
			return err
		}
		for _, n := range o.connections {
			found := make(map[string][][]rate)
			for _, op := range []string{opSet, opTake, opChain, opNoreply, opMetaSet, opMetaTake} {
				found[op] = newSeries(len(all))
			}
			noMeta := make([]bool, len(all))
			what := fmt.Sprintf("%d connections, %d bytes", n, bytes)
			err := e.inTurns(ctx, all, what, func(s *server, which, _ int) error {
				if s.protocol == "append" && n > 1 {
					return nil
				}
				c := scaleCell{scaleOptions: o, server: s, e: e, msg: msg, got: make(map[string]rate)}
				err := c.run(ctx, n)
				for op, perSecond := range c.got {
					found[op][which] = append(found[op][which], perSecond)
				}
				noMeta[which] = c.noMeta
				for _, note := range c.notes {
					r.note("%s", note)
				}
				return err
			})
			if err != nil {
				return err
			}
			o.rows(r, table, plots, all, bytes, n, found)
			for i, c := range all {
				if noMeta[i] {
					table.rates.row("pipelined meta", count(bytes), count(n), c.name, "not supported by this server")
				}
			}
		}
	}
	r.noteServers(e, all)
	return nil
}

// rows writes what was found at one size and number of connections.
func (o scaleOptions) rows(r *report, table *comparison, plots map[string]*plot, all []contestant, bytes, n int, found map[string][][]rate) {
	for _, op := range []string{opSet, opTake, opChain, opNoreply, opMetaSet, opMetaTake} {
		table.add(op, bytes, n, found[op])
		if len(o.connections) < 2 || !slices.ContainsFunc(found[op], func(s []rate) bool { return len(s) > 0 }) {
			continue
		}
		name := fmt.Sprintf("%s, bodies of %s bytes", op, count(bytes))
		if plots[name] == nil {
			plots[name] = r.plot(name, "connections", "a second", true, true)
		}
		for i, s := range found[op] {
			if len(s) > 0 {
				plots[name].point(all[i].name, float64(n), float64(spreadOf(s).Median))
			}
		}
	}
	var least any
	if bytes == 200 {
		least = aim(1.7)
	}
	table.within(opChain, opTake, bytes, n, found[opChain], found[opTake], least)
}
