package leasehold

import (
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

const schema = 1

// bytesMax is the maximum length of a status. A status has at most a few KiB.
const bytesMax = 64 * 1024

// Status is a snapshot of a candidate's status, with its deadline. The snapshot is invalid after
// the deadline, and may be out of date even earlier: read it again before each effect. A zero
// Status reports "not leader".
type Status struct {
	// Document has all fields unchanged, for log messages; it is nil if they could not be read. The
	// field "leader" alone does not prove leadership.
	Document map[string]json.RawMessage

	token    int64
	deadline uint64
}

// ReadStatus reads status.json in a status directory. If the file is missing or damaged, the result
// reports "not leader".
func ReadStatus(directory string) Status {
	// Without O_NONBLOCK, a FIFO without a writer would block.
	file, err := os.OpenFile(filepath.Join(directory, "status.json"), os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return Status{}
	}
	defer file.Close()
	if found, err := file.Stat(); err != nil || !found.Mode().IsRegular() {
		return Status{}
	}
	text, err := io.ReadAll(io.LimitReader(file, bytesMax+1))
	if err != nil || len(text) > bytesMax {
		return Status{}
	}
	return parse(text, false)
}

// Token returns the fencing token, and true if the candidate leads at this instant.
func (s Status) Token() (int64, bool) {
	if s.ValidFor() <= 0 {
		return 0, false
	}
	return s.token, true
}

// IsLeader returns true if the candidate leads at this instant.
func (s Status) IsLeader() bool {
	return s.ValidFor() > 0
}

// ValidFor returns the time until the deadline; zero if the candidate does not lead.
func (s Status) ValidFor() time.Duration {
	now, ok := boottime()
	if !ok || s.deadline <= now {
		return 0
	}
	return time.Duration(min(s.deadline-now, 1<<62))
}

// parse returns the status. Its deadline is zero if the status is not valid in this boot.
func parse(text []byte, bootIDRequired bool) Status {
	var s Status
	// Decoding into a struct would ignore the case of field names.
	if json.Unmarshal(text, &s.Document) != nil {
		return Status{}
	}
	var version, token, deadline int64
	var leader bool
	for name, field := range map[string]any{
		"schema": &version, "leader": &leader, "token": &token, "valid_until_boottime_ns": &deadline,
	} {
		// null leaves the zero value, and a status with a zero value reports "not leader".
		if json.Unmarshal(s.Document[name], field) != nil {
			return s
		}
	}
	if version == schema && leader && token > 0 && deadline > 0 && s.isThisBoot(bootIDRequired) && s.isThisClock() {
		s.token, s.deadline = token, uint64(deadline)
	}
	return s
}

// unreadable returns true if this system has no such file or denies access to it. Other errors,
// such as EMFILE, may be temporary.
func unreadable(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission)
}

// isThisBoot returns false if the status is from another boot, if the boot is unknown and
// required, or if the boot could not be read at this instant.
func (s Status) isThisBoot(required bool) bool {
	var theirs *string
	if json.Unmarshal(s.Document["boot_id"], &theirs) != nil {
		return false
	}
	ours, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil && !unreadable(err) {
		return false
	}
	if theirs == nil || err != nil {
		return !required
	}
	return *theirs == strings.TrimSpace(string(ours))
}

// isThisClock returns false if the deadline is from another time namespace, whose clock differs.
func (s Status) isThisClock() bool {
	field, there := s.Document["time_namespace"]
	ours, err := timeNamespace()
	if err != nil && !unreadable(err) {
		return false
	}
	if !there || err != nil {
		return true
	}
	var theirs *uint64
	return json.Unmarshal(field, &theirs) == nil && (theirs == nil || *theirs == ours)
}
