package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"

	"qserver/replication"
	"qserver/storage"
	"qserver/storage/queue"
)

func rejoinCommand() command {
	return command{
		name:  "rejoin",
		usage: "[flags] DIR HOST:PORT",
		short: "make an old master's folder ready to follow the new one",
		help: `After a failover, for the data folder DIR of the old master, whose server is stopped. HOST:PORT
is the new master's HTTP port. Records of its own, which the new master has not, are set aside in
a file of DIR; it says how many. Then DIR is emptied: started with -sid, -mhost and -mport its
server gets a copy of the new master and follows. A folder without records of its own is left
as it is: it follows at once.

What was set aside shows qserver ulog FILE; the messages that were enqueued and are left in it
puts back, at the new master: qserver ulog FILE -put HOST:PORT (its memcached port).

Where the log doesn't reach back to all of these records nothing is changed.

  -admin-ca FILE   the new master's HTTP port speaks TLS, with a certificate signed by one of these
`,
		run: rejoin,
	}
}

// peerEpochs are the epochs in /api/v1/replication.
type peerEpochs struct {
	Epochs []struct {
		Number uint64
		Nonce  string
		LSN    uint64
	}
}

func (p *peerEpochs) list() (epochs []queue.Epoch, err error) {
	for _, e := range p.Epochs {
		nonce, err := strconv.ParseUint(e.Nonce, 16, 64)
		if err != nil {
			return nil, err
		}
		epochs = append(epochs, queue.Epoch{Number: e.Number, Nonce: nonce, LSN: e.LSN})
	}
	return epochs, nil
}

func rejoin(ctx context.Context, args, environ []string, stdout, stderr io.Writer) error {
	r := newRemote(environ)
	operands, err := parseCommand("rejoin", args, []option{r.caOption()}, "DIR", "HOST:PORT")
	if err != nil {
		return err
	}
	dir, master := operands[0], ""
	if err := address(&master)(operands[1]); err != nil {
		return usageError("rejoin %s: %w", operands[1], err)
	}
	if err := existingFolder(dir); err != nil {
		return err
	}
	port, err := r.port(master)
	if err != nil {
		return err
	}
	var raw json.RawMessage
	var peer struct {
		peerStatus
		peerEpochs
	}
	if err := port.ask(ctx, http.MethodGet, "/api/v1/replication", nil, &raw); err != nil {
		return err
	}
	if err := json.Unmarshal(raw, &peer); err != nil {
		return port.noAdminPort(err)
	}
	epochs, err := peer.list()
	if err != nil {
		return port.noAdminPort(err)
	}
	at, err := storage.StandingOf(dir, master, newProgress(stderr).report)
	if err != nil {
		return folderError("rejoin", dir, err)
	}
	if fmt.Sprintf("%x", at.History) != peer.History {
		return withCode(exitNotDone, fmt.Errorf("rejoin %s: it has a history of its own: it never had the same records as %s; nothing was changed", dir, master))
	}
	own, common := replication.Own(epochs, at.Epochs, at.Position.LSN)
	mine := func(lsns []uint64) (storage.Sums, error) { return storage.SumsOf(dir, at.Position, lsns) }
	theirs := func(lsns []uint64) (storage.Sums, error) { return port.sums(ctx, lsns) }
	parting, err := replication.FindParting(mine, theirs, min(common, peer.LSN))
	switch {
	case err != nil:
		return folderError("rejoin", dir, err)
	case parting.Apart && !parting.Known:
		return withCode(exitNotDone, fmt.Errorf("rejoin %s: it and %s have different records, in the same epoch, up to %d already, and one of the update logs"+
			" does not reach back further; nothing was changed; to keep what it has move the folder away and start with an empty one", dir, master, parting.Common))
	case parting.Apart:
		own, common = at.Position.LSN-parting.Common, parting.Common
	}
	switch {
	case own == 0 && at.Position.LSN > peer.LSN:
		return withCode(exitNotDone, fmt.Errorf("rejoin %s: it stands at record %d and %s, in the same epoch, at %d only: it is no new master, or is"+
			" behind; nothing was changed", dir, at.Position.LSN, master, peer.LSN))
	case own == 0:
		_, err := fmt.Fprintf(stdout, "%s has no records of its own\nto follow: start it with -sid, -mhost and -mport\n", dir)
		return err
	}
	path := asidePath(dir, common+1, at.Position.LSN)
	if err := storage.SetAside(dir, path, at.History, common, at.Position, at.Names); err != nil {
		if errors.Is(err, storage.ErrNotAll) {
			return withCode(exitNotDone, fmt.Errorf("rejoin %s: %d records of its own behind %d: %w; nothing was changed; to keep what it has move the folder"+
				" away and start with an empty one", dir, own, common, err))
		}
		return folderError("rejoin", dir, err)
	}
	if err := storage.Discard(dir); err != nil {
		return folderError("rejoin", dir, err)
	}
	_, err = fmt.Fprintf(stdout, "%d %s that %s has not, set aside in %s\nto see them: qserver ulog %s\n"+
		"to put back what was enqueued: qserver ulog %s -put HOST:PORT\nto follow: start it with -sid, -mhost and -mport\n",
		own, plural(int(own), "record"), master, path, path, path)
	return err
}

// sums asks the server for the sums of its log.
func (p adminPort) sums(ctx context.Context, lsns []uint64) (s storage.Sums, err error) {
	var raw json.RawMessage
	if err := p.ask(ctx, http.MethodGet, replication.SumsURI(lsns), nil, &raw); err != nil {
		return s, err
	}
	if s, err = replication.ParseSums(raw); err != nil {
		err = p.noAdminPort(err)
	}
	return s, err
}

// asidePath is a name that no file has.
func asidePath(dir string, from, to uint64) string {
	name := filepath.Join(dir, fmt.Sprintf("own-records-%d-%d", from, to))
	path := name
	for i := 2; ; i++ {
		if _, err := os.Lstat(path); err != nil {
			return path
		}
		path = fmt.Sprintf("%s.%d", name, i)
	}
}
