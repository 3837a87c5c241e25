package leasehold

import (
	"os"
	"syscall"
)

// newInput returns both ends of the program's input. Unlike the end of a pipe, a socket can be
// shut down for all processes that share it. A process that a C library has forked therefore does
// not delay a release.
func newInput() (theirs, ours *os.File, err error) {
	ends, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	return os.NewFile(uintptr(ends[0]), "input"), os.NewFile(uintptr(ends[1]), "input"), nil
}

// closeInput closes this end, and shuts the socket down for every process that shares it.
func closeInput(ours *os.File) {
	if connection, err := ours.SyscallConn(); err == nil {
		connection.Control(func(descriptor uintptr) {
			syscall.Shutdown(int(descriptor), syscall.SHUT_RDWR)
		})
	}
	ours.Close()
}
