package leasehold

import (
	"syscall"
	"unsafe"
)

// boottime is CLOCK_BOOTTIME in nanoseconds. Unlike the monotonic clock of package time, it
// continues while the machine is suspended.
func boottime() (uint64, bool) {
	const clockBoottime = 7
	var now syscall.Timespec
	_, _, errno := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, clockBoottime, uintptr(unsafe.Pointer(&now)), 0)
	return uint64(now.Nano()), errno == 0
}

// timeNamespace is the inode of the time namespace of this process.
func timeNamespace() (uint64, error) {
	var found syscall.Stat_t
	err := syscall.Stat("/proc/self/ns/time", &found)
	return found.Ino, err
}
