//go:build !linux

package leasehold

import "os"

func newInput() (theirs, ours *os.File, err error) {
	return os.Pipe()
}

func closeInput(ours *os.File) {
	ours.Close()
}
