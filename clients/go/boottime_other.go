//go:build !linux

package leasehold

func boottime() (uint64, bool) { return 0, false }

func timeNamespace() (uint64, bool) { return 0, false }
