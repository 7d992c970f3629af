// A worker in Go that runs a program for each job: go run worker.go QUEUE PROGRAM [ARG]…
//
// The program gets the job as its standard input, and fails with an exit code other than 0. A job is acked when it is done; one that
// failed comes again after BACKOFF seconds (5), then after twice as long, and so on. While it runs its lease of LEASE seconds (30)
// is extended, so a job may take as long as it takes; if this worker dies another one gets the job when the lease is over.
// SERVER is the server's address (127.0.0.1:11211). SIGTERM and SIGINT let the job at hand end, and stop.
package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/bradfitz/gomemcache/memcache"
)

// work does one job.
func work(job []byte) error {
	cmd := exec.Command(os.Args[2], os.Args[3:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(job), os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a ^C is for the worker
	return cmd.Run()
}

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: go run worker.go QUEUE PROGRAM [ARG]…")
		os.Exit(64)
	}
	name, lease, backoff := os.Args[1], seconds("LEASE", 30), seconds("BACKOFF", 5)
	queue := memcache.New(cmp.Or(os.Getenv("SERVER"), "127.0.0.1:11211"))
	queue.Timeout = 5 * time.Second
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer cancel()

	for ctx.Err() == nil {
		// Keep the wait, here 3 seconds, below the client's timeout.
		item, err := queue.Get(fmt.Sprintf("%s/t=3000/lease=%d", name, lease))
		if errors.Is(err, memcache.ErrCacheMiss) {
			continue
		}
		if err != nil {
			log.Printf("%s: %v", name, err)
			time.Sleep(time.Second)
			continue
		}
		// The client has a pool of connections, so messages are named by their receipts.
		message := fmt.Sprintf("%s/id=%d", name, item.CasID)
		end := message
		stop := extend(queue, message, lease)
		if err := work(item.Value); err != nil {
			log.Printf("%s: %v", message, err)
			end = fmt.Sprintf("%s/backoff=%d", message, backoff)
		}
		stop()
		if err := queue.Delete(end); err != nil {
			log.Printf("%s: %v", end, err) // the job will run again
		}
	}
}

// extend extends the lease, in seconds, until stop is called.
func extend(queue *memcache.Client, message string, lease int) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		tick := time.NewTicker(time.Duration(lease) * time.Second / 3)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				if err := queue.Touch(message, int32(lease)); err != nil {
					log.Printf("%s: %v", message, err)
				}
			}
		}
	}()
	return cancel
}

func seconds(variable string, standard int) int {
	if n, err := strconv.Atoi(os.Getenv(variable)); err == nil {
		return n
	}
	return standard
}
