package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"qserver/storage"
)

// What a file of records has of messages is put back once. So a file beside it, FILE.put, says how far that has come. It is
// written before the first message, each second, and at the end: who is killed between has put back more than it says.

// putMark is that file.
type putMark struct {
	Server  string    `json:"put_to"`      // host:port
	Through uint64    `json:"through_lsn"` // what is left of the records up to it was put back
	Whole   bool      `json:"whole"`       // all of the file was
	At      time.Time `json:"at"`

	path string
}

const putMarkEvery = time.Second

// openPutMark begins to put back the records of the file at path from the LSN from on. It refuses what was put back already,
// unless again says that it is meant.
func openPutMark(path, server string, from uint64, again bool) (*putMark, error) {
	m := &putMark{Server: server, path: path + ".put"}
	b, err := os.ReadFile(m.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, err
	case again:
	default:
		var before putMark
		if err := json.Unmarshal(b, &before); err != nil {
			return nil, withCode(exitData, fmt.Errorf("%s can't be read: %w; it said how far %s was put back: to put back all of it: -again", m.path, err, path))
		}
		when := before.At.Format(time.DateTime)
		switch {
		case before.Whole:
			return nil, withCode(exitNotDone, fmt.Errorf("%s was put back to %s at %s: a second time would enqueue its messages twice; if that is"+
				" meant: -again", path, before.Server, when))
		case from <= before.Through || from == 0:
			return nil, withCode(exitNotDone, fmt.Errorf("%s was put back to %s at %s in part, up to record %d at least: to go on: -from %d; to put back"+
				" all of it: -again", path, before.Server, when, before.Through, before.Through+1))
		}
	}
	if from > 0 {
		m.Through = from - 1
	}
	return m, m.save()
}

func (m *putMark) save() error {
	m.At = time.Now()
	b, err := json.Marshal(m)
	if err == nil {
		err = storage.WriteFile(m.path, append(b, '\n'))
	}
	if err != nil {
		return fmt.Errorf("note how far it was put back: %w", err)
	}
	return nil
}

// passed notes that what is left of the records up to lsn was put back.
func (m *putMark) passed(lsn uint64) error {
	m.Through = max(m.Through, lsn)
	if time.Since(m.At) < putMarkEvery {
		return nil
	}
	return m.save()
}

// end notes the last state, whole if err is nil, and returns err with what went wrong here.
func (m *putMark) end(err error) error {
	m.Whole = err == nil
	return errors.Join(err, m.save())
}
