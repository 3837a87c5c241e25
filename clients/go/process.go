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

// process is a running leasehold lock. It does not refer to a [HeldLock], which is thus collected
// if nobody else does.
type process struct {
	lock          string
	command       *exec.Cmd
	input, output *os.File
	first         chan []byte   // The first line, incomplete if the output ends or the line is too long.
	exited        chan struct{} // Closed after code was set.
	code          int
}

// startProcess starts the program, or leaves no descriptor open.
func startProcess(lock string, command *exec.Cmd) (*process, error) {
	theirInput, input, err := os.Pipe()
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
		first: make(chan []byte, 1), exited: make(chan struct{}),
	}
	go p.read()
	return p, nil
}

// read reads the output to its end, which is the end of the program.
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
	// A program that ignores SIGCHLD, or reaps all its children, does not know the exit code.
	code, reported := reportedCode(p.lock, last)
	p.command.Wait()
	if !reported {
		code = p.command.ProcessState.ExitCode()
	}
	p.code = code
	close(p.exited)
}

// hasExited returns true if the end of the program was noticed.
func (p *process) hasExited() bool {
	select {
	case <-p.exited:
		return true
	default:
		return false
	}
}

// close closes the input of the program, which releases the lock or leaves the queue, waits for its
// exit, and returns its code.
func (p *process) close() int {
	p.input.Close()
	timer := time.AfterFunc(releaseMax, p.kill)
	defer timer.Stop()
	<-p.exited
	return p.code
}

// abandon ends a program that holds nothing, which may be another one than leasehold.
func (p *process) abandon() int {
	p.command.Process.Signal(syscall.SIGTERM)
	return p.close()
}

func (p *process) kill() {
	p.command.Process.Kill()
	// A descendant may keep the other end open.
	p.output.Close()
}

// fieldsOf returns the fields of a complete line of JSON; nil if it is not one.
func fieldsOf(line []byte) map[string]json.RawMessage {
	var fields map[string]json.RawMessage
	if !bytes.HasSuffix(line, []byte("\n")) || json.Unmarshal(line, &fields) != nil {
		return nil
	}
	return fields
}

// reportedCode returns the exit code that the last line of the output reports.
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
