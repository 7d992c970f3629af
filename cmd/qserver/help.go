package main

import (
	"fmt"
	"io"
	"strings"
)

const helpHead = `qserver is a durable message queue that any memcached client can use: set enqueues,
get reserves, delete acks. What is reserved and not acked comes back when its
connection ends.

Usage:
  qserver [flags]                         start a server
`

const helpExample = `
Try it (one connection for all: a reservation lives with its connection):
  qserver -data /tmp/try &
  printf 'set mail 0 0 5\r\nhello\r\nget mail\r\ndelete mail\r\nquit\r\n' | nc 127.0.0.1 11211
  # STORED, VALUE mail 0 5, hello, END, DELETED
  qserver status
`

const helpFoot = `
A flag may also be given by the environment: -max-item-size as QSERVER_MAX_ITEM_SIZE;
the flag wins. Sizes are bytes or 64KiB, 256M, 1g, in powers of 1024; durations are
250ms, 5s, 1m30s. Kyoto Tycoon's command line is understood as well: put qserver
in the place of ktserver (docs/kyoto-tycoon.md).

SIGTERM or SIGINT ends it in order, a second one at once; SIGHUP opens the log file
anew and reads auth file and certificates again. Exit codes: 0 ended in order,
64 command line, 65 data damaged, 66 nothing there, 69 address in use, 73 can't create
a file, 74 write or sync failed, 75 folder in use, 77 beyond loopback without
-insecure, 78 auth file or certificate (docs/operations.md).
`

func writeHelp(w io.Writer) error {
	var b strings.Builder
	b.WriteString(helpHead)
	for _, c := range commands() {
		fmt.Fprintf(&b, "  %-39s %s\n", strings.TrimSpace("qserver "+c.name+" "+c.usage), c.short)
	}
	b.WriteString("  qserver help COMMAND                    more about one of these\n")
	b.WriteString(helpExample)
	group := ""
	for _, k := range new(config).knobs() {
		if k.group != group {
			group = k.group
			fmt.Fprintf(&b, "\n%s:\n", group)
		}
		text := strings.ReplaceAll(k.help, "\n", "\n"+strings.Repeat(" ", 25))
		if k.def != "" {
			text += " (default " + k.def + ")"
		}
		fmt.Fprintf(&b, "  %-22s %s\n", strings.TrimSpace("-"+k.name+" "+k.unit), text)
	}
	fmt.Fprintf(&b, "  %-22s %s\n  %-22s %s\n", "-help", "print this", "-version", "print the version")
	b.WriteString(helpFoot)
	_, err := io.WriteString(w, b.String())
	return err
}

func writeCommandHelp(w io.Writer, c command) error {
	_, err := fmt.Fprintf(w, "usage: %s\n\n%s", strings.TrimSpace("qserver "+c.name+" "+c.usage), c.help)
	return err
}
