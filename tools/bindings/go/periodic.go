// SPDX-License-Identifier: LGPL-2.1-only

package wq

import (
	"encoding/binary"
	"errors"
	"hash/fnv"
	"math"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	day        = 24 * time.Hour
	daySeconds = int64(day / time.Second)
)

// A schedule is when a key is due, as libwq.h describes it.
type schedule struct {
	key    string
	name   string        // the part of the key ahead of the schedule
	every  time.Duration // between two due times; 0: once a day
	at     int64         // s after midnight at which its day begins; -1: all days are one
	jitter time.Duration
	skip   bool
}

// With a comma ahead of the text.
var scheduleText = regexp.MustCompile(`^(?:,every=([0-9]{1,8}[smhd]))?` +
	`(?:,at=([01][0-9]|2[0-3]):([0-5][0-9]))?(?:,jitter=([0-9]{1,8}[smhd]))?(,skip)?$`)

// secondsOf is the time of a schedule, and 0 without one. It is -1 if the time is not possible.
func secondsOf(text string) time.Duration {
	if text == "" {
		return 0
	}
	units := map[byte]time.Duration{
		's': time.Second, 'm': time.Minute, 'h': time.Hour, 'd': day,
	}
	n, _ := strconv.ParseInt(text[:len(text)-1], 10, 64)
	unit := units[text[len(text)-1]]
	if n < 1 || n > int64(1000*day/unit) {
		return -1
	}
	return time.Duration(n) * unit
}

func scheduleOf(key string) (schedule, bool) {
	mark := strings.LastIndexByte(key, '@')
	if mark < 1 {
		return schedule{}, false
	}
	// The expression is slower than this look, and most keys are not periodic.
	if text := key[mark+1:]; !strings.HasPrefix(text, "every=") && !strings.HasPrefix(text, "at=") {
		return schedule{}, false
	}
	m := scheduleText.FindStringSubmatch("," + key[mark+1:])
	if m == nil {
		return schedule{}, false
	}
	s := schedule{key, key[:mark], secondsOf(m[1]), -1, secondsOf(m[4]), m[5] != ""}
	if m[2] != "" {
		hours, _ := strconv.Atoi(m[2])
		minutes, _ := strconv.Atoi(m[3])
		s.at = int64(hours*3600 + minutes*60)
	}
	if s.every < 0 || s.jitter < 0 || s.at >= 0 && s.every > day || s.jitter >= s.period() {
		return schedule{}, false
	}
	// A day can have 25 hours.
	if s.at >= 0 && s.every == day {
		s.every = 0
	}
	return s, true
}

func (s *schedule) period() time.Duration {
	if s.every == 0 {
		return day
	}
	return s.every
}

func offset(t int64, zone *time.Location) int64 {
	_, seconds := time.Unix(t, 0).In(zone).Zone()
	return int64(seconds)
}

// start is when a day of the schedule begins. As in RFC 5545, a time that comes twice is the first
// of them, and one that is left out has the offset of before.
func (s *schedule) start(d int64, zone *time.Location) int64 {
	local := d*daySeconds + s.at
	first := local - offset(local-daySeconds, zone)
	second := local - offset(local+daySeconds, zone)
	if first+offset(first, zone) != local && second+offset(second, zone) == local {
		return second
	}
	return first
}

// plain returns the last due time up to now and the first one after it, without their jitter.
func (s *schedule) plain(now int64, zone *time.Location) (last, next int64) {
	from, to := int64(0), int64(math.MaxInt64)
	if s.at >= 0 {
		d := (now+offset(now, zone))/daySeconds + 2
		from = s.start(d, zone)
		for from > now {
			d--
			from, to = s.start(d, zone), from
		}
	}
	if s.every == 0 {
		return from, to
	}
	every := int64(s.every / time.Second)
	last = now - (now-from)%every
	return last, min(last+every, to)
}

// jittered is a due time with its jitter, which depends on nothing but the key, the time and the
// zone. It ends before the next due time.
func (s *schedule) jittered(due int64, zone *time.Location) time.Time {
	_, next := s.plain(due, zone)
	most := min(s.jitter, time.Duration(next-due)*time.Second-time.Millisecond)
	sum := fnv.New64a()
	sum.Write([]byte(s.key))
	sum.Write(binary.LittleEndian.AppendUint64(nil, uint64(due)))
	ms := sum.Sum64() % uint64(most/time.Millisecond+1)
	return time.Unix(due, int64(ms)*int64(time.Millisecond))
}

// due returns the last due time up to now and the first one after it.
func (s *schedule) due(now time.Time) (last, next time.Time) {
	zone := now.Location()
	before, after := s.plain(now.Unix(), zone)
	last = s.jittered(before, zone)
	if last.After(now) {
		before, _ = s.plain(before-1, zone)
		return s.jittered(before, zone), last
	}
	return last, s.jittered(after, zone)
}

// PeriodicName returns the part of a key ahead of its schedule, and the key if it has none. A
// periodic key ends with @ and a schedule, such as backup@every=5m. libwq(3) describes schedules.
func PeriodicName(key string) string {
	if s, found := scheduleOf(key); found {
		return s.name
	}
	return key
}

// PeriodicDue returns the first time after now at which a key is due, in now's location. It returns
// false if the key has no schedule.
func PeriodicDue(key string, now time.Time) (time.Time, bool) {
	s, found := scheduleOf(key)
	if !found {
		return time.Time{}, false
	}
	_, next := s.due(now)
	return next.In(now.Location()), true
}

// AddPeriodic adds a periodic key, delayed until it is due next. The result is true if the key is
// newly delayed. It fails with EINVAL if the key has no schedule. The delay does not follow a later
// set of the wall clock, unless wqctl run --periodic or a worker with libwq works on the queue.
func (q *Queue) AddPeriodic(key string) (bool, error) {
	now := time.Now()
	due, found := PeriodicDue(key, now)
	if !found {
		return false, q.fail("add", key, syscall.EINVAL)
	}
	return q.AddWith(Entry{Key: key, Delay: due.Sub(now)})
}

// BeginPeriodic adds the item's key once more, delayed until it is due next. So the key has its
// next run then, also if this one fails or its consumer dies. It is called before the run, and
// returns false if the run is to be left out: its schedule has skip, and it is late. If the key has
// no schedule, it returns true. A queue that is shut down and a key that is disabled have no next
// run, and it returns true. After another error there is no next run, unless the run ends by
// RetryAfter. Go reads the local zone once per process, and takes UTC if TZ is a rule of POSIX, such
// as CET-1CEST.
func (it Item) BeginPeriodic() (bool, error) {
	s, found := scheduleOf(it.Key)
	if !found {
		return true, nil
	}
	if it.q == nil {
		return false, errNoItem
	}
	now := time.Now()
	last, next := s.due(now)
	fresh, err := it.q.AddWith(Entry{Key: it.Key, Priority: it.Priority, Delay: next.Sub(now)})
	if errors.Is(err, syscall.ESHUTDOWN) || errors.Is(err, syscall.EBUSY) {
		return true, nil
	}
	// A key that still had its delay has this run for another reason than its due time.
	late := now.Sub(last) > min(s.period()/10, time.Minute)
	skipped := fresh && s.skip && late && it.Failures == 0 && it.GivenBack == 0
	return err == nil && !skipped, err
}
