package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// nodeEnv is the environment in which node finds the modules that scripts/test has installed.
func nodeEnv() []string {
	env := os.Environ()
	if cache, err := os.UserCacheDir(); err == nil {
		modules := filepath.Join(cache, "qserver-tests", "node_modules")
		env = append(env, "NODE_PATH="+modules+string(os.PathListSeparator)+os.Getenv("NODE_PATH"))
	}
	return env
}

// needNode returns node if it has the module, and skips the test otherwise.
func needNode(t *testing.T, module string) string {
	t.Helper()
	check := exec.Command("node", "-e", "require('"+module+"')")
	check.Env = nodeEnv()
	if check.Run() != nil {
		t.Skipf("node with %s is not installed (scripts/test clients)", module)
	}
	return "node"
}
