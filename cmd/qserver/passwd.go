package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/crypto/bcrypt"
	"golang.org/x/term"
)

func passwdCommand() command {
	return command{
		name:  "passwd",
		usage: "[-delete] FILE USER",
		short: "add a user to an -auth-file, or change the password",
		help: `Asks for a password, twice on a terminal, else as the first line of standard input, and
writes its bcrypt hash for USER to FILE, which is made if it is not there. Other lines
stay as they are. A running server reads the file again on SIGHUP: open connections go
on, but for those of a user who is not in it any more.

  -delete   remove USER instead
`,
		run: func(_ context.Context, args, _ []string, stdout, stderr io.Writer) error {
			return passwd(args, os.Stdin, stdout, stderr)
		},
	}
}

func passwd(args []string, stdin *os.File, stdout, stderr io.Writer) error {
	remove := false
	operands, err := parseCommand("passwd", args, []option{{"delete", true, toggle(&remove)}}, "FILE", "USER")
	if err != nil {
		return err
	}
	path, user := operands[0], operands[1]
	if err := checkUser(user); err != nil {
		return usageError("passwd: %w", err)
	}
	old, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) && !remove {
		err = nil
	} else if err == nil && len(bytes.TrimSpace(old)) > 0 {
		_, err = parseAccounts(path, old) // a file that does not hold is not touched
	}
	if err != nil {
		return withCode(exitConfig, fmt.Errorf("passwd: %w", err))
	}
	var hash []byte
	if !remove {
		password, err := askPassword(stdin, stderr)
		if err != nil {
			return fmt.Errorf("passwd: %w", err)
		}
		if hash, err = bcrypt.GenerateFromPassword(password, bcrypt.DefaultCost); err != nil {
			return fmt.Errorf("passwd: %w", err)
		}
	}
	text, done := editAccounts(string(old), user, hash)
	if done == "" {
		return withCode(exitNoInput, fmt.Errorf("passwd: no user %s in %s", user, path))
	}
	if err := replaceFile(path, []byte(text)); err != nil {
		return fmt.Errorf("passwd: %w", err)
	}
	_, err = fmt.Fprintf(stdout, "user %s %s; a running server reads %s again on SIGHUP\n", user, done, path)
	return err
}

// editAccounts gives user that hash, or removes him if it is nil, and says what it has done; "": there was nothing to remove.
func editAccounts(old, user string, hash []byte) (text, done string) {
	var b strings.Builder
	for line := range strings.Lines(old) {
		name, _, _ := strings.Cut(strings.TrimSpace(line), ":")
		switch {
		case name != user:
			b.WriteString(strings.TrimSuffix(line, "\n") + "\n")
		case hash == nil:
			done = "removed"
		default:
			done = "changed"
			fmt.Fprintf(&b, "%s:%s\n", user, hash)
		}
	}
	if done == "" && hash != nil {
		done = "added"
		fmt.Fprintf(&b, "%s:%s\n", user, hash)
	}
	return b.String(), done
}

// askPassword reads a password, twice where a terminal asks for it.
func askPassword(stdin *os.File, stderr io.Writer) ([]byte, error) {
	if !term.IsTerminal(int(stdin.Fd())) {
		line, err := bufio.NewReader(io.LimitReader(stdin, 4*kib)).ReadBytes('\n')
		if err != nil && err != io.EOF {
			return nil, fmt.Errorf("standard input: %w", err)
		}
		line = bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r"))
		return line, checkPassword(line)
	}
	ask := func(prompt string) ([]byte, error) {
		fmt.Fprint(stderr, prompt)
		defer fmt.Fprintln(stderr)
		return term.ReadPassword(int(stdin.Fd()))
	}
	password, err := ask("Password: ")
	if err == nil {
		err = checkPassword(password)
	}
	if err != nil {
		return nil, err
	}
	again, err := ask("Once more: ")
	if err == nil && !bytes.Equal(password, again) {
		err = usageError("the two are not equal; nothing was changed")
	}
	return password, err
}

func checkPassword(password []byte) error {
	if len(password) == 0 || len(password) > maxPassword || bytes.IndexByte(password, 0) >= 0 {
		return usageError("want a password of 1 to %d bytes; nothing was changed", maxPassword)
	}
	return nil
}

// replaceFile writes a file so that whoever reads it finds the old text or the new one, whole. Mode and owner stay; a new one is for its
// owner only.
func replaceFile(path string, text []byte) (err error) {
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-") // mode 0600
	if err != nil {
		return withCode(exitCreate, err)
	}
	defer func() {
		if err != nil {
			os.Remove(f.Name())
		}
	}()
	if info, statErr := os.Stat(path); statErr == nil {
		if owner, ok := info.Sys().(*syscall.Stat_t); ok {
			err = f.Chown(int(owner.Uid), int(owner.Gid))
		}
		err = errors.Join(err, f.Chmod(info.Mode().Perm()))
	}
	_, writeErr := f.Write(text)
	if err = errors.Join(err, writeErr, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err = os.Rename(f.Name(), path); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
