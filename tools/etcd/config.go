// SPDX-License-Identifier: GPL-2.0-only

package wqetcd

// Options, and the connection to etcd with errors that name the cause.
//
// The options of the connection have etcdctl's names and environment variables. The command line
// counts more than the file of --config, and the file more than the environment.

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
)

type options struct {
	endpoints, cacert, cert, key string
	user, password               string
	dialTimeout                  time.Duration

	queue, prefix, member, mirror string
	owner                         string
	ownerID                       int
	shards, jobs                  int
	maxKeys, maxRetries           int
	ttl, margin, relist           time.Duration
	metrics                       string
	stream, json                  bool

	etcd    *clientv3.Config // of a Go program, or nil
	systemd bool
}

func (o *options) flags(fs *flag.FlagSet) {
	fs.StringVar(&o.endpoints, "endpoints", "127.0.0.1:2379", "etcd's `URLS`, by commas")
	fs.StringVar(&o.cacert, "cacert", "", "`FILE` of the CA that signed etcd's certificate")
	fs.StringVar(&o.cert, "cert", "", "`FILE` of this client's certificate")
	fs.StringVar(&o.key, "key", "", "`FILE` of the certificate's key")
	fs.StringVar(&o.user, "user", "", "`USER[:PASSWORD]` of etcd")
	fs.StringVar(&o.password, "password", "", "`PASSWORD` of the user")
	fs.DurationVar(&o.dialTimeout, "dial-timeout", 5*time.Second, "`TIME` to connect, and for a call")
	fs.StringVar(&o.prefix, "prefix", "", "`PREFIX` in etcd (default /wq/QUEUE/)")
	fs.IntVar(&o.shards, "shards", 256, "`NUMBER` of shards of a new queue")
	fs.StringVar(&o.mirror, "mirror", "", "mirror mode: the keys are the objects below this `PREFIX`")
	fs.StringVar(&o.member, "member", "", "`NAME` of this member (default: the host's name)")
	fs.StringVar(&o.queue, "local", "", "`NAME` of the local queues (default: QUEUE)")
	fs.StringVar(&o.owner, "owner", "", "`USER` that may own the local queues, besides root")
	fs.IntVar(&o.jobs, "jobs", 1, "`NUMBER` of keys that run at once")
	fs.BoolVar(&o.stream, "stream", false, "the command reads keys, and is started once for a job")
	fs.IntVar(&o.maxKeys, "max-keys", 0, "`NUMBER` of keys of the local queue (default: the kernel's)")
	fs.IntVar(&o.maxRetries, "max-retries", 15, "`NUMBER` of retries, then a key is parked; 0: no end")
	fs.DurationVar(&o.ttl, "ttl", 15*time.Second, "`TIME` until the shards of a dead member move")
	fs.DurationVar(&o.margin, "margin", 3*time.Second, "`TIME` before the end of the lease to stop")
	fs.DurationVar(&o.relist, "relist", 5*time.Minute, "`TIME` after which each shard is listed again")
	fs.BoolVar(&o.json, "json", false, "print JSON: status, ls and why")
	fs.StringVar(&o.metrics, "metrics", "", "serve metrics at this `ADDRESS:PORT`")
}

// fromEnv are the options that etcdctl reads from the environment, too.
var fromEnv = []string{"endpoints", "cacert", "cert", "key", "user", "password", "dial-timeout"}

// parse reads all three sources, and returns the arguments that are left.
func (o *options) parse(name string, args []string) ([]string, error) {
	fs := flag.NewFlagSet(name, flag.ContinueOnError)
	o.flags(fs)
	file := fs.String("config", "", "read options from this `FILE`, as lines NAME = VALUE")
	fs.Usage = func() {
		fmt.Fprint(fs.Output(), usage[name], "\nOptions:\n")
		fs.PrintDefaults()
	}
	if err := fs.Parse(args); err != nil {
		return nil, err
	}
	given := map[string]bool{}
	fs.Visit(func(f *flag.Flag) { given[f.Name] = true })
	for _, name := range fromEnv {
		env := "ETCDCTL_" + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
		if value := os.Getenv(env); value != "" && !given[name] {
			if err := fs.Set(name, value); err != nil {
				return nil, fmt.Errorf("%s in the environment: %w", env, err)
			}
		}
	}
	if *file != "" {
		if err := readConfig(fs, *file, given); err != nil {
			return nil, err
		}
	}
	return fs.Args(), nil
}

func readConfig(fs *flag.FlagSet, path string, given map[string]bool) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || line[0] == '#' {
			continue
		}
		name, value, ok := strings.Cut(line, "=")
		name, value = strings.TrimSpace(name), strings.TrimSpace(value)
		switch {
		case !ok:
			err = errors.New("expected NAME = VALUE")
		case fs.Lookup(name) == nil || name == "config":
			err = fmt.Errorf("there is no option %q", name)
		case !given[name]:
			err = fs.Set(name, value)
		}
		if err != nil {
			return fmt.Errorf("%s:%d: %w", path, n, err)
		}
	}
	return lines.Err()
}

// forQueue completes the options, once the queue's name is known.
func (o *options) forQueue(name string) error {
	if o.prefix == "" {
		o.prefix = "/wq/" + name + "/"
	}
	if o.queue == "" {
		o.queue = name
	}
	if o.member == "" {
		host, err := os.Hostname()
		if err != nil {
			return err
		}
		o.member = host
	}
	if o.relist < time.Second || o.jobs < 1 {
		return errors.New("--relist is 1s at least, and --jobs is 1 at least")
	}
	if o.dialTimeout <= 0 {
		return errors.New("--dial-timeout is more than 0")
	}
	if err := checkName(o.member); err != nil {
		return err
	}
	if err := o.findOwner(); err != nil {
		return err
	}
	l := o.layout()
	if err := l.check(); err != nil {
		return err
	}
	return newLease(o.ttl, o.margin, nil).check()
}

func (o *options) layout() layout {
	return layout{prefix: o.prefix, Version: layoutVersion, Shards: o.shards, Mirror: o.mirror}
}

func (o *options) tls() (*tls.Config, error) {
	if o.cacert == "" && o.cert == "" && !strings.Contains(o.endpoints, "https://") {
		return nil, nil
	}
	made := &tls.Config{MinVersion: tls.VersionTLS12}
	if o.cacert != "" {
		pem, err := os.ReadFile(o.cacert)
		if err != nil {
			return nil, err
		}
		made.RootCAs = x509.NewCertPool()
		if !made.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s has no certificate in PEM", o.cacert)
		}
	}
	if o.cert != "" || o.key != "" {
		// Read for each connection, so that a new certificate needs no restart.
		made.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(o.cert, o.key)
			return &pair, err
		}
		if _, err := made.GetClientCertificate(nil); err != nil {
			return nil, fmt.Errorf("the client's certificate can't be used: %w", err)
		}
	}
	return made, nil
}

// reconnect is quicker than gRPC's default: 20 s for a try and up to 120 s between tries, in which a
// lease would end.
var reconnect = grpc.ConnectParams{MinConnectTimeout: 3 * time.Second, Backoff: backoff.Config{
	BaseDelay: 200 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 3 * time.Second}}

// connect returns a client that has reached an endpoint.
func (o *options) connect(ctx context.Context) (*clientv3.Client, error) {
	var cfg clientv3.Config
	if o.etcd != nil {
		cfg = *o.etcd
	} else {
		secure, err := o.tls()
		if err != nil {
			return nil, err
		}
		user, password, ok := strings.Cut(o.user, ":")
		if !ok {
			password = o.password
		}
		cfg = clientv3.Config{Endpoints: strings.Split(o.endpoints, ","), TLS: secure,
			Username: user, Password: password}
	}
	cfg.Context, cfg.DialTimeout = ctx, o.dialTimeout
	// etcd refuses pings that come more often than each 5 s, and gRPC sends none below 10 s.
	cfg.DialKeepAliveTime, cfg.DialKeepAliveTimeout = 10*time.Second, 3*time.Second
	cfg.DialOptions = append(cfg.DialOptions[:len(cfg.DialOptions):len(cfg.DialOptions)],
		grpc.WithBlock(), grpc.WithReturnConnectionError(), grpc.WithConnectParams(reconnect))
	// A page of a listing can be larger than the limit that a program has set. 0: no limit.
	cfg.MaxCallSendMsgSize, cfg.MaxCallRecvMsgSize = 1<<20, 0
	cfg.Logger = zap.NewNop()
	client, err := clientv3.New(cfg)
	if err != nil {
		return nil, o.explain(err)
	}
	return client, nil
}

// explain adds the likely cause and the next step to an error of etcd or of the connection.
func (o *options) explain(err error) error {
	text := err.Error()
	has := func(parts ...string) bool {
		for _, part := range parts {
			if strings.Contains(text, part) {
				return true
			}
		}
		return false
	}
	hint := ""
	switch {
	case has("has expired or is not yet valid"):
		hint = "the certificate is not valid at " + time.Now().UTC().Format(time.RFC3339) +
			", which is this machine's time: set the clock (timedatectl), or renew the certificate"
	case has("unknown authority"):
		hint = "--cacert is not the CA of etcd's certificate"
	case has("x509:"):
		hint = "etcd's certificate is not for the name in --endpoints"
	case has("certificate required", "bad certificate", "unknown certificate"),
		o.cacert != "" && o.cert == "" && has("broken pipe", "connection reset"):
		// With TLS 1.3 the server closes the connection after the client's first bytes.
		hint = "etcd asks for a certificate of the client: see --cert and --key"
	case has("first record does not look like a TLS handshake", "handshake failed: EOF"):
		hint = "etcd does not use TLS: its URL starts with http://"
	case has("error reading server preface"):
		hint = "is this etcd's port for clients, and does it use TLS? Then its URL starts with https://"
	case errors.Is(err, rpctypes.ErrAuthFailed), has("authentication failed"):
		hint = "see --user and --password"
	case errors.Is(err, rpctypes.ErrPermissionDenied):
		hint = "the user needs the right to read and write " + o.prefix
	case errors.Is(err, rpctypes.ErrUserEmpty):
		hint = "etcd wants a user: see --user"
	case errors.Is(err, context.DeadlineExceeded), has("connection refused", "no route", "timeout",
		"deadline exceeded", "no leader"):
		hint = "does a majority of the servers run, and can this machine reach " + o.endpoints + "?"
	default:
		return err
	}
	return fmt.Errorf("etcd: %w: %s", err, hint)
}

// agree makes the layout of a new queue, or compares it with that of the queue.
func (o *options) agree(ctx context.Context, client *clientv3.Client) (layout, error) {
	l := o.layout()
	ctx, cancel := context.WithTimeout(ctx, o.dialTimeout)
	defer cancel()
	r, err := client.Txn(ctx).
		If(clientv3.Compare(clientv3.CreateRevision(l.configKey()), "=", 0)).
		Then(clientv3.OpPut(l.configKey(), l.encode())).
		Else(clientv3.OpGet(l.configKey())).Commit()
	if err != nil {
		return l, o.explain(err)
	}
	if r.Succeeded {
		return l, nil
	}
	there := layout{prefix: l.prefix}
	if err := there.decode(string(r.Responses[0].GetResponseRange().Kvs[0].Value)); err != nil {
		return l, fatal{err}
	}
	if there != l {
		return l, fatal{fmt.Errorf("the queue %s has --shards %d --mirror %q, and not --shards %d "+
			"--mirror %q: these never change", l.prefix, there.Shards, there.Mirror, l.Shards, l.Mirror)}
	}
	return l, nil
}

// find reads the layout of a queue that exists.
func (o *options) find(ctx context.Context, client *clientv3.Client) (layout, error) {
	l := layout{prefix: o.prefix}
	ctx, cancel := context.WithTimeout(ctx, o.dialTimeout)
	defer cancel()
	r, err := client.Get(ctx, l.configKey())
	if err != nil {
		return l, o.explain(err)
	}
	if len(r.Kvs) == 0 {
		return l, fmt.Errorf("there is no queue %s in etcd: wq-etcd run makes it", l.prefix)
	}
	return l, l.decode(string(r.Kvs[0].Value))
}
