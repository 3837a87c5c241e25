//go:build !linux

package leasehold

import "os/exec"

func endWithParent(*exec.Cmd) {}
