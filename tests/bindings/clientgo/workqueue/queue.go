// SPDX-License-Identifier: LGPL-2.1-only

// The package k8s.io/client-go/util/workqueue over wq, for client-go's own tests: tests/bindings/go
// builds it with these files in place of client-go's queue.go, delaying_queue.go,
// rate_limiting_queue.go and metrics.go. It has what the tests use. The limiters and the tests are
// client-go's own files.
package workqueue

import (
	"time"

	over "wq.example/wq/workqueue"

	"wq.example/wq"

	"k8s.io/utils/clock"
)

type Interface TypedInterface[any]

type TypedInterface[T comparable] interface {
	Add(item T)
	Len() int
	Get() (item T, shutdown bool)
	Done(item T)
	ShutDown()
	ShutDownWithDrain()
	ShuttingDown() bool
}

// Queue is the order of items. The kernel has the order, and only Touch is called.
type Queue[T comparable] interface {
	Touch(item T)
	Push(item T)
	Len() int
	Pop() (item T)
}

type noOrder[T comparable] struct{}

func (noOrder[T]) Touch(T)  {}
func (noOrder[T]) Push(T)   { panic("the kernel has the order") }
func (noOrder[T]) Len() int { panic("the kernel has the order") }
func (noOrder[T]) Pop() T   { panic("the kernel has the order") }

func DefaultQueue[T comparable]() Queue[T] { return noOrder[T]{} }

type QueueConfig = TypedQueueConfig[any]

type TypedQueueConfig[T comparable] struct {
	Name            string
	MetricsProvider MetricsProvider
	Clock           clock.WithTicker
	Queue           Queue[T]
}

type Type = Typed[any]

type Typed[T comparable] struct{ *over.Queue[T] }

func New() *Type { return NewWithConfig(QueueConfig{}) }

func NewWithConfig(config QueueConfig) *Type { return NewTypedWithConfig(config) }

func NewTypedWithConfig[T comparable](config TypedQueueConfig[T]) *Typed[T] {
	return newQueueWithConfig(config, 0)
}

func newQueueWithConfig[T comparable](config TypedQueueConfig[T], period time.Duration) *Typed[T] {
	var metrics *over.Metrics
	if config.Name != "" && config.MetricsProvider != nil {
		metrics = over.MetricsOf(config.Name, config.MetricsProvider)
	}
	return newTyped(config.Clock, config.Queue, metrics, period)
}

// newTyped makes a private queue of the kernel.
func newTyped[T comparable](c clock.WithTicker, order Queue[T], metrics *over.Metrics,
	period time.Duration) *Typed[T] {
	config := over.Config[T]{Codec: over.Local[T](), Metrics: metrics, UpdatePeriod: period}
	if order != nil {
		config.Touch = order.Touch
	}
	// A clock that runs in real time is no reason not to use the kernel's delays.
	if _, real := c.(interface{ RealTime() }); c != nil && !real {
		config.Clock = c
	}
	q, err := wq.New(wq.Attrs{})
	if err != nil {
		panic(err)
	}
	made, err := over.New(q, config)
	if err != nil {
		panic(err)
	}
	return &Typed[T]{made}
}

type DelayingInterface TypedDelayingInterface[any]

type TypedDelayingInterface[T comparable] interface {
	TypedInterface[T]
	AddAfter(item T, duration time.Duration)
}

type DelayingQueueConfig = TypedDelayingQueueConfig[any]

type TypedDelayingQueueConfig[T comparable] struct {
	Name            string
	MetricsProvider MetricsProvider
	Clock           clock.WithTicker
	Queue           TypedInterface[T]
}

func NewDelayingQueueWithConfig(config DelayingQueueConfig) DelayingInterface {
	return NewTypedDelayingQueueWithConfig(config)
}

func NewTypedDelayingQueueWithConfig[T comparable](
	config TypedDelayingQueueConfig[T]) TypedDelayingInterface[T] {
	return &delayingType[T]{TypedInterface: NewTypedWithConfig(TypedQueueConfig[T]{
		Name: config.Name, MetricsProvider: config.MetricsProvider, Clock: config.Clock,
	})}
}

// delayingType has the fields that tests set or read. waitingForAddCh of client-go holds delays
// that its goroutine has not seen yet. Here there are none, unless TestRateLimitingQueue sets the
// channel to look at the delays.
type delayingType[T comparable] struct {
	TypedInterface[T]
	clock           clock.Clock
	stopCh          chan struct{}
	heartbeat       clock.Ticker
	waitingForAddCh chan *waitFor[T]
	metrics         retryMetrics
}

type waitFor[T any] struct {
	data    T
	readyAt time.Time
}

const maxWait = 10 * time.Second

func (d *delayingType[T]) AddAfter(item T, duration time.Duration) {
	if d.waitingForAddCh != nil {
		d.waitingForAddCh <- &waitFor[T]{item, d.clock.Now().Add(duration)}
		return
	}
	d.TypedInterface.(over.TypedDelayingInterface[T]).AddAfter(item, duration)
}

type RateLimitingInterface TypedRateLimitingInterface[any]

type TypedRateLimitingInterface[T comparable] interface {
	TypedDelayingInterface[T]
	AddRateLimited(item T)
	Forget(item T)
	NumRequeues(item T) int
}

func NewRateLimitingQueue(limiter RateLimiter) RateLimitingInterface {
	return &rateLimitingType[any]{
		TypedDelayingInterface: NewDelayingQueueWithConfig(DelayingQueueConfig{}),
		rateLimiter:            limiter,
	}
}

// rateLimitingType has the fields that TestRateLimitingQueue sets. It does what over.Queue does
// with Config.Limiter, whose delays the test could not look at.
type rateLimitingType[T comparable] struct {
	TypedDelayingInterface[T]
	rateLimiter TypedRateLimiter[T]
}

func (r *rateLimitingType[T]) AddRateLimited(item T)  { r.AddAfter(item, r.rateLimiter.When(item)) }
func (r *rateLimitingType[T]) Forget(item T)          { r.rateLimiter.Forget(item) }
func (r *rateLimitingType[T]) NumRequeues(item T) int { return r.rateLimiter.NumRequeues(item) }
