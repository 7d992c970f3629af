//go:build !linux

package client

import "os"

func syncData(f *os.File) error { return f.Sync() }
