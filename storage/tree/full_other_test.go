//go:build !linux

package tree_test

import "errors"

func mountSmall(string) error   { return errors.ErrUnsupported }
func unmountSmall(string) error { return errors.ErrUnsupported }
