// The page of a report: a table that is sorted, filtered and opened row by row, and charts. Text goes into the page as text
// only; the one exception are charts, which kmark drew with every name escaped.
'use strict';
(() => {
  const PAGE = 200;
  const el = (id) => document.getElementById(id);
  const data = JSON.parse(el('data').textContent);
  const { columns, rows, runs } = data;
  let order = rows.map((_, i) => i), shown = order, page = 0, sorted = -1, down = false, lines = null;

  const make = (tag, attrs, ...children) => {
    const e = document.createElement(tag);
    for (const [k, v] of Object.entries(attrs || {})) if (v !== undefined) e.setAttribute(k, v);
    e.append(...children);
    return e;
  };

  // Filtering and sorting.
  let texts = null;
  let numbers = 0;
  for (const c of columns) if (c.number) c.key = numbers++;
  const key = (r, n) => columns[n].number ? r.k[columns[n].key] : r.c[n] || null;
  const compare = (column) => (a, b) => {
    const x = key(rows[a], column), y = key(rows[b], column);
    if (x === null || y === null) return (x === null) - (y === null) || a - b;
    const c = x < y ? -1 : x > y ? 1 : 0;
    return (down ? -c : c) || a - b;
  };
  const filter = () => {
    const words = el('words').value.toLowerCase().split(/\s+/).filter(Boolean);
    if (words.length) texts = texts || rows.map((r) => (r.c.join(' ') + ' ' + (r.m || '')).toLowerCase());
    const op = el('op').value, status = el('status').value;
    const fits = (i) => (!op || rows[i].op === op) && (!status || rows[i].s === status) && words.every((w) => texts[i].includes(w));
    shown = order.filter(fits);
    page = 0;
    draw();
  };
  const sort = (column) => {
    down = sorted === column ? !down : false;
    sorted = column;
    order.sort(compare(column));
    [...el('head').children].forEach((th, i) => {
      th.setAttribute('aria-sort', i !== sorted ? 'none' : down ? 'descending' : 'ascending');
    });
    filter();
  };

  // The table, one page of it.
  const COLOURS = { ok: 'good', unsupported: 'warn', unavailable: 'warn', unverified: 'warn', faster: 'good', slower: 'bad' };
  const draw = () => {
    const from = page * PAGE, part = shown.slice(from, from + PAGE);
    const body = document.createDocumentFragment();
    for (const i of part) {
      const r = rows[i];
      const tr = make('tr', { 'data-row': i });
      columns.forEach((c, n) => {
        const td = make('td', { class: (c.number ? 'n ' : '') + c.name });
        if (c.name === 'case') td.append(make('button', { class: 'open', type: 'button', 'aria-expanded': 'false' }, r.c[n]));
        else td.textContent = r.c[n];
        if (c.name === 'status') td.classList.add(COLOURS[r.s] || 'bad');
        if (c.name === 'verdict') td.classList.add(COLOURS[r.c[n].split(' ')[0]] || 'dim');
        tr.append(td);
      });
      body.append(tr);
    }
    el('body').replaceChildren(body);
    el('count').textContent = shown.length === rows.length ? rows.length + ' rows' : shown.length + ' of ' + rows.length + ' rows';
    el('page').textContent = shown.length > PAGE ? 'rows ' + (from + 1) + ' to ' + (from + part.length) : '';
    el('back').disabled = page === 0;
    el('next').disabled = from + PAGE >= shown.length;
  };
  // Whoever turns pages by keyboard is at the first row then, not at a button that may have been switched off.
  const turn = (by) => { page += by; draw(); const first = el('body').querySelector('button'); if (first) first.focus(); };

  // What stands behind a row.
  const detail = (i) => {
    lines = lines || el('details').textContent.split('\n');
    return JSON.parse(lines[i]);
  };
  const list = (pairs) => {
    const dl = make('dl');
    for (const [k, v] of pairs) if (v !== undefined && v !== null && v !== '') dl.append(make('dt', {}, k), make('dd', {}, String(v)));
    return dl;
  };
  const block = (title, ...children) => make('div', {}, make('h3', {}, title), ...children);
  const open = (button) => {
    const tr = button.closest('tr');
    if (button.getAttribute('aria-expanded') === 'true') {
      button.setAttribute('aria-expanded', 'false');
      button.removeAttribute('aria-controls');
      tr.nextSibling.remove();
      return;
    }
    const r = rows[+tr.dataset.row], d = detail(+tr.dataset.row), run = runs[r.run];
    const id = 'more-' + tr.dataset.row, td = make('td', { colspan: columns.length });
    if (r.m) td.append(block('Message', make('pre', {}, r.m)));
    if (d.samples_ns.length) td.append(block(
      'Samples and clocks' + (d.samples_ns.length < d.taken ? ' (' + d.samples_ns.length + ' of ' + d.taken + ' samples, evenly picked)' : ''), samples(d)));
    if (d.samples_ns.length === 0 && d.taken) td.append(make('p', { class: 'dim' }, 'Its ' + d.taken + ' samples are left out of this page; records.jsonl has them.'));
    const copy = make('button', { type: 'button' }, 'Copy');
    copy.onclick = () => { navigator.clipboard && navigator.clipboard.writeText(d.behind.command).then(() => { copy.textContent = 'Copied'; }); };
    if (d.behind) td.append(block('Run it again', make('pre', {}, d.behind.command), copy));
    td.append(make('div', { class: 'cols' },
      block('Row', list(d.behind ? d.behind.facts : [])),
      block('Run', list(run.facts))));
    tr.after(make('tr', { class: 'more', id }, td));
    button.setAttribute('aria-expanded', 'true');
    button.setAttribute('aria-controls', id);
  };

  // Samples in the order of measuring, and the clock below.
  const NS = document.createElementNS.bind(document, document.querySelector('#probe').namespaceURI);
  const samples = (d) => {
    const W = 1100, H = 190, C = 60, L = 80, n = d.samples_ns.length;
    const svg = NS('svg');
    const put = (tag, attrs, text) => {
      const e = NS(tag);
      for (const [k, v] of Object.entries(attrs)) e.setAttribute(k, v);
      if (text) e.textContent = text;
      svg.append(e);
    };
    const clocks = d.clock_mhz.length === n;
    svg.setAttribute('class', 'kc');
    svg.setAttribute('role', 'img');
    svg.setAttribute('aria-label', n + ' samples around ' + d.time);
    svg.setAttribute('viewBox', '0 0 ' + W + ' ' + (clocks ? H + C + 10 : H));
    svg.setAttribute('style', 'width:100%;max-width:' + W + 'px');
    const strip = (values, top, height, unit, scale, cls) => {
      let lo = Infinity, hi = -Infinity;
      for (const v of values) { lo = Math.min(lo, v); hi = Math.max(hi, v); }
      const pad = (hi - lo) * 0.06 || hi * 0.01;
      lo -= pad; hi += pad;
      const y = (v) => top + height - (v - lo) / (hi - lo) * height;
      for (const v of [lo + pad, hi - pad]) {
        put('line', { x1: L, x2: W, y1: y(v), y2: y(v), class: 'grid' });
        put('text', { x: L - 6, y: y(v) + 4, class: 'small dim end' }, (v / scale).toPrecision(4) + ' ' + unit);
      }
      values.forEach((v, i) => put('circle', { cx: (L + (i + 0.5) / n * (W - L)).toFixed(1), cy: y(v).toFixed(1), r: 2, class: cls }));
      return y;
    };
    const [scale, unit] = d.time_ns >= 1e9 ? [1e9, 's'] : d.time_ns >= 1e6 ? [1e6, 'ms'] : d.time_ns >= 1e3 ? [1e3, 'µs'] : [1, 'ns'];
    const y = strip(d.samples_ns, 8, H - 16, unit, scale, 'f0');
    put('line', { x1: L, x2: W, y1: y(d.time_ns), y2: y(d.time_ns), class: 'roof2' });
    if (clocks) strip(d.clock_mhz, H + 4, C - 8, 'MHz', 1, 'f6');
    return svg;
  };

  // Everything into its place.
  const choices = (id, values) => el(id).append(make('option', { value: '' }, 'all'), ...values.map((v) => make('option', { value: v }, v)));
  choices('op', [...new Set(rows.map((r) => r.op))].sort());
  choices('status', [...new Set(rows.map((r) => r.s))].sort());
  columns.forEach((c, i) => {
    const button = make('button', { type: 'button' }, c.head);
    button.onclick = () => sort(i);
    el('head').append(make('th', { scope: 'col', 'aria-sort': 'none', class: c.number ? 'n' : undefined }, button));
  });
  const fact = (run, name) => (run.facts.find(([k]) => k === name) || [])[1];
  const told = (run, name, most) => { const v = fact(run, name); return v ? name + ' ' + (v.length > most ? v.slice(0, most) + '…' : v) : ''; };
  el('facts').textContent = runs.map((r) => [
    r.device, fact(r, 'run'), fact(r, 'started'), told(r, 'host', 60), told(r, 'commit', 10), told(r, 'tags', 120), told(r, 'no roofs', 120),
    r.noise ? 'A/A noise ' + r.noise : ''].filter(Boolean).join(' · ')).join('\n');
  if (data.left_out) {
    el('left').hidden = false;
    el('left').textContent = 'This page has the first ' + rows.length + ' of ' + (rows.length + data.left_out) + ' rows; its charts are of all. '
      + 'kmark report --filter or --sort chooses others, --format csv has every row.';
  }
  ['words', 'op', 'status'].forEach((id) => el(id).addEventListener('input', filter));
  el('back').onclick = () => turn(-1);
  el('next').onclick = () => turn(1);
  el('body').addEventListener('click', (e) => { const b = e.target.closest('button.open'); if (b) open(b); });

  let pictures = null;
  const picture = () => {
    pictures = pictures || JSON.parse(el('pictures').textContent);
    el('picture').innerHTML = pictures[+el('chart').value];
  };
  if (data.charts.length) {
    el('charts').hidden = false;
    el('chart').append(...data.charts.map((name, i) => make('option', { value: i }, name)));
    el('chart').addEventListener('input', picture);
    picture();
  }
  filter();
})();
