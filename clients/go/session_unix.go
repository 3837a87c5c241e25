//go:build unix

package leasehold

import (
	"os/exec"
	"syscall"
)

// inOwnSession starts the program in a separate session, which Ctrl-C and the end of the terminal
// do not reach. Both reach this process, and its end closes the program's input.
func inOwnSession(command *exec.Cmd) {
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
}
