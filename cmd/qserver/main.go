// Command qserver is a durable message queue that any memcached client can use: set enqueues, get reserves, delete acks.
// Without a subcommand it starts a server; qserver -help has the flags, the other commands and an example.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
)

// version is digits only, in every build: clients parse it from the reply to the version command.
const version = "1.0.0"

func main() {
	err := run(context.Background(), os.Args[1:], os.Environ(), os.Stdout, os.Stderr)
	if err != nil {
		fmt.Fprintln(os.Stderr, "qserver:", err)
	}
	os.Exit(exitCode(err))
}

// command is one subcommand. Its arguments are those behind its name.
type command struct {
	name  string
	usage string // arguments, as in the help
	short string // what it does, in one line of the help
	help  string // the rest of what qserver NAME -help says
	run   func(ctx context.Context, args, environ []string, stdout, stderr io.Writer) error
}

// commands lists the subcommands in the order of the help.
func commands() []command {
	return []command{statusCommand(), checkCommand(), repairCommand(), defragCommand(), ulogCommand(), promoteCommand(), followCommand(), rejoinCommand(), passwdCommand(), versionCommand()}
}

// run does what the command line asks for and returns when that is done; its error's exit code is in exit.go. environ
// is as of os.Environ. The end of ctx is a server's SIGTERM.
func run(ctx context.Context, args, environ []string, stdout, stderr io.Writer) error {
	if len(args) > 0 {
		for _, c := range commands() {
			if args[0] == c.name {
				return runCommand(ctx, c, args[1:], environ, stdout, stderr)
			}
		}
		if args[0] == "help" {
			return helpFor(args[1:], stdout)
		}
	}
	c, err := parseConfig(args, environ)
	switch {
	case err != nil:
		return err
	case c.help:
		return writeHelp(stdout)
	case c.version:
		return writeVersion(stdout)
	}
	return serve(ctx, c, stdout, stderr)
}

func runCommand(ctx context.Context, c command, args, environ []string, stdout, stderr io.Writer) error {
	for _, a := range args {
		switch a {
		case "-h", "-help", "--help":
			return writeCommandHelp(stdout, c)
		case "--":
			return c.run(ctx, args, environ, stdout, stderr)
		}
	}
	return c.run(ctx, args, environ, stdout, stderr)
}

// helpFor is qserver help [COMMAND].
func helpFor(args []string, stdout io.Writer) error {
	if len(args) == 0 {
		return writeHelp(stdout)
	}
	for _, c := range commands() {
		if c.name == args[0] {
			return writeCommandHelp(stdout, c)
		}
	}
	return usageError("no command %q (qserver -help lists them)", args[0])
}
