//go:build !linux

package leasehold

import "io/fs"

func boottime() (uint64, bool) { return 0, false }

func timeNamespace() (uint64, error) { return 0, fs.ErrNotExist }
