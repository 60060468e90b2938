// SPDX-License-Identifier: GPL-2.0-only

// Sample of a controller: client-go's informer adds the keys of objects that change to a queue of
// wq, and workers in another process make the status of each object equal to its spec.
//
//	controller watch SOCKET OBJECTS    the informer, and a cluster of so many objects
//	controller work SOCKET             four workers
//
// The cluster is client-go's fake clientset. It makes a change for each object, and ends when the
// status of each is right. The workers can be killed at any time and started again: the keys that
// they held are ready again at once, and the other changes have waited in the queue. After SIGINT
// or SIGTERM the workers end the runs that have begun, and the other keys stay in the queue.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"math/rand"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	v1 "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"wq.example/wq"
	"wq.example/wq/workqueue"
)

func check(err error) {
	if err != nil {
		log.Fatal("controller: ", err)
	}
}

// openQueue opens the queue, which outlives the processes that use it.
func openQueue() *workqueue.Queue[string] {
	q, err := wq.OpenFile("configmaps", os.O_RDWR|os.O_CREATE, 0o600, wq.Attrs{})
	check(err)
	queue, err := workqueue.New(q, workqueue.Config[string]{
		Codec: workqueue.Strings[string]()})
	check(err)
	return queue
}

// A cluster is what the workers reach through the socket.
type cluster struct {
	ctx    context.Context
	client kubernetes.Interface
	lister listers.ConfigMapLister
	mu     sync.Mutex    // of updates: the fake clientset keeps 100 events for the informer
	seen   chan struct{} // the informer has seen an update
}

func (c *cluster) get(key string) (*v1.ConfigMap, error) {
	space, name, err := cache.SplitMetaNamespaceKey(key)
	if err != nil {
		return nil, err
	}
	return c.lister.ConfigMaps(space).Get(name)
}

func (c *cluster) set(key, field, value string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	object, err := c.get(key)
	if err != nil {
		return err
	}
	object = object.DeepCopy()
	object.Data[field] = value
	_, err = c.client.CoreV1().ConfigMaps(object.Namespace).Update(
		c.ctx, object, meta.UpdateOptions{})
	if err == nil {
		select {
		case <-c.seen:
		case <-c.ctx.Done():
			err = c.ctx.Err()
		}
	}
	return err
}

func (c *cluster) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	key := strings.TrimPrefix(r.URL.Path, "/")
	object, err := c.get(key)
	if err == nil && r.Method == http.MethodPut {
		var status []byte
		if status, err = io.ReadAll(r.Body); err == nil {
			err = c.set(key, "status", string(status))
		}
	} else if err == nil {
		err = json.NewEncoder(w).Encode(object.Data)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

// behind returns the number of objects whose status is not their spec.
func (c *cluster) behind() (n int) {
	objects, err := c.lister.List(labels.Everything())
	check(err)
	for _, object := range objects {
		if object.Data["status"] != object.Data["spec"] {
			n++
		}
	}
	return n
}

func watch(ctx context.Context, socket string, count int) {
	queue := openQueue()
	objects := make([]runtime.Object, count)
	for i := range objects {
		objects[i] = &v1.ConfigMap{
			ObjectMeta: meta.ObjectMeta{Namespace: "default", Name: fmt.Sprint("object-", i)},
			Data:       map[string]string{"spec": "new"},
		}
	}
	c := &cluster{ctx: ctx, client: fake.NewSimpleClientset(objects...), seen: make(chan struct{})}
	factory := informers.NewSharedInformerFactory(c.client, 0)
	maps := factory.Core().V1().ConfigMaps()
	c.lister = maps.Lister()
	add := func(object any) {
		key, err := cache.MetaNamespaceKeyFunc(object)
		check(err)
		queue.Add(key)
	}
	_, err := maps.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: add,
		UpdateFunc: func(_, object any) {
			add(object)
			select {
			case c.seen <- struct{}{}:
			case <-ctx.Done():
			}
		},
	})
	check(err)
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())

	listener, err := net.Listen("unix", socket)
	check(err)
	defer listener.Close() // and remove the socket
	go http.Serve(listener, c)
	for i := range count {
		key := fmt.Sprint("default/object-", rand.Intn(count))
		err := c.set(key, "spec", strconv.Itoa(i))
		if ctx.Err() != nil {
			return
		}
		check(err)
	}
	fmt.Printf("%d objects, %d changes, %d objects to be reconciled\n", count, count, c.behind())
	for ctx.Err() == nil && c.behind() > 0 {
		time.Sleep(50 * time.Millisecond)
	}
	if ctx.Err() == nil {
		fmt.Println("all objects are reconciled")
	}
}

// A worker reaches the cluster.
type worker struct {
	http.Client
	queue *workqueue.Queue[string]
}

func (w *worker) reconcile(key string) error {
	url := "http://cluster/" + key
	got, err := w.Get(url)
	if err != nil {
		return err
	}
	defer got.Body.Close()
	var data map[string]string
	if err := json.NewDecoder(got.Body).Decode(&data); err != nil {
		return err
	}
	if data["status"] == data["spec"] {
		return nil
	}
	put, err := http.NewRequest(http.MethodPut, url, strings.NewReader(data["spec"]))
	if err != nil {
		return err
	}
	answer, err := w.Do(put)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", key, answer.Status)
	}
	return nil
}

func (w *worker) run() {
	for key, down := w.queue.Get(); !down; key, down = w.queue.Get() {
		if err := w.reconcile(key); err != nil {
			log.Print("controller: ", err)
			w.queue.AddRateLimited(key)
			if w.queue.ShuttingDown() {
				// The add may have had no effect. Without Done, the key is ready again when
				// the process ends.
				return
			}
		} else {
			w.queue.Forget(key)
		}
		w.queue.Done(key)
	}
}

func work(ctx context.Context, socket string) {
	w := &worker{queue: openQueue()}
	context.AfterFunc(ctx, w.queue.Stop)
	w.Transport = &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		},
	}
	var workers sync.WaitGroup
	for range 4 {
		workers.Add(1)
		go func() { defer workers.Done(); w.run() }()
	}
	workers.Wait()
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	args := os.Args[1:]
	switch {
	case len(args) == 3 && args[0] == "watch":
		count, err := strconv.Atoi(args[2])
		check(err)
		watch(ctx, args[1], count)
	case len(args) == 2 && args[0] == "work":
		work(ctx, args[1])
	default:
		fmt.Fprintln(os.Stderr, "usage: controller watch SOCKET OBJECTS | work SOCKET")
		os.Exit(2)
	}
}
