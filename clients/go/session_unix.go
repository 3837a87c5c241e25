//go:build unix

package leasehold

import (
	"os/exec"
	"syscall"
)

// inOwnSession starts the program in a separate session, so that neither Ctrl-C nor a hangup of the
// terminal reaches it. They reach only this process, whose exit closes the program's input.
func inOwnSession(command *exec.Cmd) {
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
}
