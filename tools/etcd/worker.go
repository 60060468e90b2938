// SPDX-License-Identifier: GPL-2.0-only

package wqetcd

// Workers: a command for each key, or processes that run one key after the other.
//
// A worker gets the fence of its run, so that it can compare the create revision of the run's entry
// in the transactions by which it writes to etcd, or store it with what it writes elsewhere.
//
//	a command   {} is replaced by the key; without {} the key is the last argument. The
//	            environment has WQ_KEY, WQ_RUN (the entry of the run), WQ_FENCE (its create
//	            revision) and WQ_NEED (the revision of the change). Exit status 0: done.
//	a stream    standard input has a request for each key: "NEED FENCE RUNS KEY", ended by NUL.
//	            The entry of the run is RUNS and KEY without the blank.
//	            Standard output has a line for each: "done", "retry REASON", "after SECONDS"
//	            or "give-up REASON". A process that ended between two runs is replaced.
//
// A worker is a process group. It gets SIGKILL when the session ends, and the worker's first
// process also if this program dies. Processes that it left behind then need the unit's cgroup.

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"wq.example/wq"
)

var errNUL = wq.GiveUpOn(errors.New(
	"the key has a NUL byte, which neither an argument nor a request can have"))

// starts is served by one thread, because the signal of a parent's death is sent when the thread
// ends that started the process.
var starts = make(chan func())

func serveStarts() {
	runtime.LockOSThread()
	for start := range starts {
		start()
	}
}

func start(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.WaitDelay = time.Second // what it left behind may hold its output open
	done := make(chan error)
	starts <- func() { done <- cmd.Start() }
	return <-done
}

func killGroup(cmd *exec.Cmd) { syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }

// --- a command for each key ---------------------------------------------------------------

type commandWorker struct{ args []string }

func (w *commandWorker) work(r *run) error {
	if strings.Contains(r.key, "\x00") {
		return errNUL
	}
	args := make([]string, len(w.args))
	found := false
	for i, arg := range w.args {
		found = found || strings.Contains(arg, "{}")
		args[i] = strings.ReplaceAll(arg, "{}", r.key)
	}
	if !found {
		args = append(args, r.key)
	}
	last := &lastLine{to: os.Stderr}
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdout, cmd.Stderr = os.Stdout, last
	cmd.Env = append(os.Environ(), "WQ_KEY="+r.key, "WQ_RUN="+r.entry(),
		fmt.Sprintf("WQ_FENCE=%d", r.fence), fmt.Sprintf("WQ_NEED=%d", r.need))
	if err := start(cmd); err != nil {
		return err
	}
	defer context.AfterFunc(r.ctx, func() { killGroup(cmd) })()
	err := cmd.Wait()
	if errors.Is(err, exec.ErrWaitDelay) {
		err = nil
	}
	if err != nil && last.text() != "" {
		err = fmt.Errorf("%w: %s", err, last.text())
	}
	return err
}

// lastLine passes text on, and remembers its last line.
type lastLine struct {
	to   io.Writer
	line []byte
}

func (l *lastLine) Write(p []byte) (int, error) {
	l.line = append(l.line, p...)
	if i := bytes.LastIndexByte(bytes.TrimRight(l.line, "\n"), '\n'); i >= 0 {
		l.line = l.line[i+1:]
	}
	if len(l.line) > 256 {
		l.line = l.line[:256]
	}
	return l.to.Write(p)
}

func (l *lastLine) text() string { return strings.TrimSpace(string(l.line)) }

// --- processes that run one key after the other ---------------------------------------------

type streamWorker struct {
	args []string
	idle chan *process // as many as there are jobs; nil: not started
}

type process struct {
	cmd *exec.Cmd
	in  *os.File
	out *bufio.Reader

	outFile io.Closer
}

func newStreamWorker(args []string, jobs int) *streamWorker {
	w := &streamWorker{args, make(chan *process, jobs)}
	for ; jobs > 0; jobs-- {
		w.idle <- nil
	}
	return w
}

func (w *streamWorker) work(r *run) error {
	if strings.Contains(r.key, "\x00") {
		return errNUL
	}
	p := <-w.idle
	for {
		reused := p != nil
		if !reused {
			var err error
			if p, err = w.start(); err != nil {
				w.idle <- nil
				return err
			}
		}
		reply, err := p.ask(r)
		if err == nil {
			w.idle <- p
			return outcome(reply)
		}
		killGroup(p.cmd)
		err = errors.Join(p.cmd.Wait(), err)
		unread := errors.Is(err, syscall.EPIPE) || p.unread() == len(r.request())
		p.in.Close()
		p = nil
		// A process that was idle may have ended before the request, which is no failure of the key.
		// But what a process has read is a run, and another one would have the same fence.
		if reused && unread && r.ctx.Err() == nil {
			continue
		}
		w.idle <- nil
		return fmt.Errorf("the worker ended during its run: %w", err)
	}
}

func (w *streamWorker) start() (*process, error) {
	cmd := exec.Command(w.args[0], w.args[1:]...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	stdin, in, err := os.Pipe() // not StdinPipe, which Wait closes: see unread
	if err != nil {
		out.Close()
		return nil, err
	}
	defer stdin.Close()
	cmd.Stdin = stdin
	if err := start(cmd); err != nil {
		in.Close()
		return nil, err
	}
	return &process{cmd, in, bufio.NewReader(out), out}, nil
}

func (r *run) request() string {
	return fmt.Sprintf("%d %d %s %s\x00", r.need, r.fence, r.runs, r.key)
}

// ask sends a request and waits for the reply. The end of the run's context kills the process.
func (p *process) ask(r *run) (string, error) {
	stop := context.AfterFunc(r.ctx, func() {
		killGroup(p.cmd)
		p.in.Close() // what it left behind may hold the other ends open
		p.outFile.Close()
	})
	reply := ""
	_, err := p.in.WriteString(r.request())
	if err == nil {
		reply, err = p.out.ReadString('\n')
	}
	if !stop() && err == nil {
		err = r.ctx.Err() // the process has been killed, or is about to be
	}
	return strings.TrimSuffix(reply, "\n"), err
}

// unread returns how many bytes of requests no process has read, or -1 if it is not known.
func (p *process) unread() int {
	n := -1
	if conn, err := p.in.SyscallConn(); err == nil {
		conn.Control(func(fd uintptr) {
			if bytes, err := unix.IoctlGetUint32(int(fd), unix.TIOCINQ); err == nil {
				n = int(bytes)
			}
		})
	}
	return n
}

func outcome(reply string) error {
	word, rest, _ := strings.Cut(reply, " ")
	switch word {
	case "done":
		return nil
	case "retry":
		return errors.New(rest)
	case "give-up":
		return wq.GiveUpOn(errors.New(rest))
	case "after":
		seconds, err := strconv.ParseFloat(rest, 64)
		if err == nil && seconds >= 0 && seconds < 1e9 {
			return wq.RetryIn(time.Duration(seconds * float64(time.Second)))
		}
	}
	return fmt.Errorf("the worker replied %q: done, retry REASON, after SECONDS or give-up REASON "+
		"was expected", reply)
}
