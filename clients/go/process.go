package leasehold

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"syscall"
	"time"
)

const lineBytesMax = 4096

// releaseMax bounds the wait for the program, which waits for MongoDB for at most 5 s.
var releaseMax = 10 * time.Second

// exitMax bounds the wait for the exit after SIGKILL.
const exitMax = time.Second

// process is a running leasehold lock. It does not refer to a [HeldLock], so that a HeldLock
// without other references is collected.
type process struct {
	lock          string
	command       *exec.Cmd
	input, output *os.File
	first         chan []byte   // The first line, incomplete if the output ends or the line is too long.
	ended         chan struct{} // Closed at the end of the output.
	exited        chan struct{} // Closed after result was set.
	result        result
}

// result is the program's exit code (-1 if unknown), and whether the last line of the output
// reports it. Only the last line proves a release: an exit code may come from another program
// that runs leasehold.
type result struct {
	code     int
	reported bool
}

// startProcess starts the program. After an error no descriptor is open.
func startProcess(lock string, command *exec.Cmd) (*process, error) {
	theirInput, input, err := newInput()
	if err != nil {
		return nil, err
	}
	defer theirInput.Close()
	output, theirOutput, err := os.Pipe()
	if err != nil {
		input.Close()
		return nil, err
	}
	defer theirOutput.Close()
	command.Stdin, command.Stdout, command.Stderr = theirInput, theirOutput, os.Stderr
	inOwnSession(command)
	if err := command.Start(); err != nil {
		input.Close()
		output.Close()
		return nil, err
	}
	p := &process{
		lock: lock, command: command, input: input, output: output,
		first: make(chan []byte, 1), ended: make(chan struct{}), exited: make(chan struct{}),
	}
	go p.read()
	return p, nil
}

// read reads the output until the program closes it.
func (p *process) read() {
	reader := bufio.NewReaderSize(p.output, lineBytesMax)
	line, _ := reader.ReadSlice('\n')
	last := bytes.Clone(line)
	p.first <- bytes.Clone(line)
	for part, err := line, error(nil); err == nil; {
		if part, err = reader.ReadSlice('\n'); len(part) > 0 {
			last = append(last[:0], part...)
		}
		if err == bufio.ErrBufferFull {
			err = nil
		}
	}
	p.output.Close()
	close(p.ended)
	// The exit code is unknown in a process that ignores SIGCHLD or reaps all its children.
	code, reported := reportedCode(p.lock, last)
	p.command.Wait()
	if !reported {
		code = p.command.ProcessState.ExitCode()
	}
	p.result = result{code, reported}
	close(p.exited)
}

// hasEnded returns true once this process has noticed that the program ended.
func (p *process) hasEnded() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// close closes the input of the program, so that the program releases the lock or leaves the queue.
// It waits for the exit and returns the result, which is unknown if the program survives SIGKILL.
func (p *process) close() result {
	closeInput(p.input)
	kill := time.AfterFunc(releaseMax, p.kill)
	defer kill.Stop()
	limit := time.NewTimer(releaseMax + exitMax)
	defer limit.Stop()
	select {
	case <-p.exited:
		return p.result
	case <-limit.C:
		return result{code: -1}
	}
}

// abandon ends a program that does not hold the lock. The program may not be leasehold at all.
func (p *process) abandon() int {
	p.command.Process.Signal(syscall.SIGTERM)
	return p.close().code
}

func (p *process) kill() {
	p.command.Process.Kill()
	// A descendant may keep the other end open.
	p.output.Close()
}

// fieldsOf returns the fields of a complete line of JSON; nil for other text.
func fieldsOf(line []byte) map[string]json.RawMessage {
	var fields map[string]json.RawMessage
	if !bytes.HasSuffix(line, []byte("\n")) || json.Unmarshal(line, &fields) != nil {
		return nil
	}
	return fields
}

func reportedCode(lock string, line []byte) (int, bool) {
	fields := fieldsOf(line)
	var name string
	var code *int
	for field, value := range map[string]any{"lock": &name, "exit_code": &code} {
		if json.Unmarshal(fields[field], value) != nil {
			return 0, false
		}
	}
	if name != lock || code == nil {
		return 0, false
	}
	return *code, true
}
