package main

import "fmt"

// comparison writes rates, and the ratios of one server's to another's, turn by turn.
type comparison struct {
	all           []contestant
	pairs         [][2]int // indexes of all: the first is divided by the second
	rates, ratios *table
}

// newComparison makes the two tables; there are no ratios where nothing is to be compared.
func (e *env) newComparison(r *report, all []contestant, what string) *comparison {
	c := &comparison{all: all, pairs: e.pairs(all)}
	c.rates = r.table(what+": operations a second", "operation", "bytes", "connections", "server", "a second")
	if len(c.pairs) > 0 {
		c.ratios = r.table(what+": ratios, turn by turn", "operation", "bytes", "connections", "server", "against", "ratio", "aim")
	}
	return c
}

// pairs says who is compared with whom: all with -against where that was given; else ours with those rivals that
// promise the same, and with every target.
func (e *env) pairs(all []contestant) [][2]int {
	index := make(map[string]int)
	for i, c := range all {
		index[c.name] = i
	}
	var pairs [][2]int
	if base, ok := index[e.against]; ok {
		for i := range all {
			if i != base {
				pairs = append(pairs, [2]int{i, base})
			}
		}
		return pairs
	}
	for _, v := range rivals {
		a, ok := index[v.ours]
		b, ok2 := index[v.theirs]
		if ok && ok2 {
			pairs = append(pairs, [2]int{a, b})
		}
	}
	for i, c := range all {
		for j, target := range all {
			if ours(c) && target.word != "" {
				pairs = append(pairs, [2]int{i, j})
			}
		}
	}
	return pairs
}

// add writes the rates of an operation, those of each contestant turn by turn; one without any is left out.
func (c *comparison) add(operation string, bytes, connections int, series [][]rate) {
	for i, s := range series {
		if len(s) > 0 {
			c.rates.row(operation, count(bytes), count(connections), c.all[i].name, spreadOf(s))
		}
	}
	for _, p := range c.pairs {
		a, b := series[p[0]], series[p[1]]
		if len(a) == 0 || len(b) == 0 {
			continue
		}
		aim := aimOf(c.all[p[0]].name, c.all[p[1]].name, operation, bytes, connections)
		c.ratios.row(operation, count(bytes), count(connections), c.all[p[0]].name, c.all[p[1]].name, spreadOf(ratios(a, b)), aim)
	}
}

// within writes the ratios of one operation to another of the same server.
func (c *comparison) within(operation, other string, bytes, connections int, of, by [][]rate, aim any) {
	if c.ratios == nil {
		return
	}
	for i := range of {
		if len(of[i]) > 0 && len(by[i]) > 0 {
			c.ratios.row(operation, count(bytes), count(connections), c.all[i].name, "its "+other, spreadOf(ratios(of[i], by[i])), aim)
		}
	}
}

// An aim is the least that a ratio should be.
type aim float64

func (a aim) String() string { return fmt.Sprintf("%g", float64(a)) }

// The words that stand in the place of an aim where a number would not say all.
const (
	aimFirst = "above 1: first in every cell"
	aimSame  = "1 (a key each: the same work)"
	aimLess  = "none (one key overwritten: less work)"
)

// aimOf is the ratio that this project wants to reach, as an aim or in words, for bodies of 200 bytes on two cores that
// client and server share; nil where none was set.
func aimOf(ours, theirs, operation string, bytes, connections int) any {
	if bytes != 200 {
		return nil
	}
	set, take := operation == opSet, operation == opTake
	if operation == opNoreply && ours == "qserver/never" {
		return map[string]any{"memcached": aimLess, "memcached/each": aimSame}[theirs]
	}
	if !set && !take {
		return nil
	}
	switch ours + " " + theirs {
	case "qserver/never memcached":
		switch {
		case connections == 1:
			return aim(1.6)
		case connections != 8 && connections != 64:
			return nil
		case set:
			return aim(0.85)
		}
		return aim(0.95)
	case "qserver/enqueue memcached":
		switch {
		case connections != 64:
			return nil
		case set:
			return aim(0.6)
		}
		return aim(0.9)
	case "qserver/always beanstalkd/each":
		if connections == 64 {
			return aim(8)
		}
		return aimFirst
	case "qserver/interval=50ms beanstalkd/50ms", "qserver/interval=1s redis/everysec", "qserver/always redis/always":
		return aimFirst
	case "qserver/interval=1s jetstream/default", "qserver/always jetstream/always":
		return aim(3)
	case "qserver/always append":
		if set && connections == 1 {
			return aim(0.8)
		}
	}
	return nil
}
