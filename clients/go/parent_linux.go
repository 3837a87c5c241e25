package leasehold

import (
	"os/exec"
	"syscall"
)

// endWithParent lets the program receive SIGTERM when the thread that starts it ends.
func endWithParent(command *exec.Cmd) {
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
}
