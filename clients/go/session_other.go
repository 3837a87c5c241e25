//go:build !unix

package leasehold

import "os/exec"

func inOwnSession(*exec.Cmd) {}
