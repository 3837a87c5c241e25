//go:build unix

package leasehold

import (
	"os/exec"
	"syscall"
)

// inOwnSession starts the program in a session of its own, which Ctrl-C and the end of the terminal
// do not reach. They are for this process, whose end closes the program's input.
func inOwnSession(command *exec.Cmd) {
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
}
