package main
import "testing"
func testReadme(t *testing.T, program string) {}
