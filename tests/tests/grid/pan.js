// Runs in the page: a chart of 2,000 hosts and 20,000 reservations is moved for some seconds each way; how many frames a
// second the browser made, and the longest wait between two.
const done = arguments[arguments.length - 1];
(async () => {
  const { Chart } = await import("/js/gantt.js");
  const hosts = [];
  const bookings = [];
  const sites = [];
  const now = Math.floor(Date.now() / 1000);
  let seed = 1;
  const random = (below) => {
    seed = (Math.imul(seed, 1103515245) + 12345) & 0x7fffffff;
    return (seed >> 8) % below;
  };
  for (let site = 0; site < 40; site += 1) {
    const name = `site-${String(site).padStart(2, "0")}`;
    sites.push({ site: name, name, schedule: site % 7 === 3 ? "stale" : "current", told_age_s: site % 7 === 3 ? 400 : 3, is_cut: false });
    for (let host = 0; host < 50; host += 1) {
      hosts.push({ site: name, site_name: name, host: `h${host}`, attributes: {}, resources: { cpu: 4000 } });
    }
  }
  for (let index = 0; index < 20000; index += 1) {
    const site = random(40);
    const start = now - 7 * 86400 + random(14 * 86400);
    bookings.push({ site: sites[site].site, request: `r${index}`, entry_point: sites[0].site, attempt: 1, user: `user-${random(30)}`,
      start, end: start + 600 + random(20000), hosts: [{ host: `h${random(50)}`, amounts: { cpu: 1000 } }] });
  }
  const place = document.querySelector("main > .gantt");
  place.replaceChildren();
  const chart = new Chart(place, "");
  chart.fit();
  const began = performance.now();
  chart.take({ hosts, sites, bookings });
  const arranged = performance.now() - began;
  const measure = (move) => new Promise((resolve) => {
    const times = [];
    let index = 0;
    const step = (at) => {
      times.push(at);
      index += 1;
      if (at - times[0] > 3000) {
        const gaps = times.slice(1).map((time, position) => time - times[position]);
        resolve({ per_second: (1000 * gaps.length) / (times[times.length - 1] - times[0]), longest_ms: Math.max(...gaps) });
        return;
      }
      move(index);
      requestAnimationFrame(step);
    };
    requestAnimationFrame(step);
  });
  chart.rowHeight = 3;
  chart.arrange();
  chart.zoomTo(336 * 3600);
  const span = chart.until - chart.from;
  const result = {
    arranged_ms: arranged,
    sideways: await measure((index) => chart.move((index % 200 < 100 ? 1 : -1) * span / 100, 0)),
    down: await measure((index) => chart.move(0, index % 400 < 200 ? 23 : -23)),
    zoom: await measure((index) => chart.zoomTo((chart.until - chart.from) * (index % 80 < 40 ? 0.93 : 1 / 0.93))),
  };
  chart.isClosed = true;
  done(result);
})().catch((error) => done({ error: String(error) }));
